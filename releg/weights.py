"""A trained sigmoid belief net in one file: `save_model`, and `load`, which also reads the checkpoint of a run.

This module is not called `load`, because `releg.load` is the function.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from releg import checkpoint_file, safetensors_file
from releg.sbn import SigmoidBeliefNet

DIGEST = "sha256"  # key of the metadata: a digest of everything else
PREFIX = "model."  # of the net's weights in a checkpoint of Lightning
PUBLISHED = Path("results", "weights")  # in a clone


def save_model(path: str | Path, model: SigmoidBeliefNet, metadata: Mapping[str, str] | None = None) -> None:
    """Write the net to a .safetensors file, with metadata about it and a digest of both."""
    weights = model.state_dict()
    says = {"architecture": model.architecture, **(metadata or {})}
    safetensors_file.write(path, weights, {**says, DIGEST: digest(weights, says)})


def load(path: str | Path) -> SigmoidBeliefNet:
    """The net in a .safetensors file, in a run's checkpoint, or of published weights, on the CPU. No code is run.

    Args:
        path: a file, or the name of published weights such as 200-200/crn: those in results/weights of the current
            folder or, where the package is used from a clone, of this clone.
    """
    path = _find(Path(path))
    if path.suffix == ".safetensors":
        return _model_of(load_weights(path)[0], path)
    state = checkpoint_file.read(path).get("state_dict")
    if not isinstance(state, dict):
        raise ValueError(f"{path} holds no state_dict, expected a checkpoint written by releg fit; use its best.ckpt")
    return _model_of({k.removeprefix(PREFIX): v for k, v in state.items() if str(k).startswith(PREFIX)}, path)


def _find(path: Path) -> Path:
    """The file itself, or that of published weights."""
    if path.is_file() or path.suffix:
        if not path.is_file():
            raise FileNotFoundError(f"there is no file {path}, expected a .safetensors file or a run's best.ckpt")
        return path
    for folder in (Path(), Path(__file__).parents[1]):
        if (published := (folder / PUBLISHED / path).with_suffix(".safetensors")).is_file():
            return published
    raise FileNotFoundError(
        f"there are no published weights '{path}' here, expected {PUBLISHED}/{path}.safetensors; they are part of the "
        "repository: clone it and call load in its folder, or give the path of a file"
    )


def load_weights(path: str | Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata of a file by `save_model`; ValueError if a byte of it has changed.

    A change in what is read does not fit the digest; one that leaves it as it was, such as other white space, does not
    lead to the same bytes again.
    """
    weights, metadata = safetensors_file.read(path)
    is_as_written = safetensors_file.encode(weights, metadata) == Path(path).read_bytes()
    if metadata.pop(DIGEST, None) != digest(weights, metadata) or not is_as_written:
        raise ValueError(
            f"{path} is damaged (its content does not fit its digest), expected what was saved; get the file again"
        )
    return weights, metadata


def digest(weights: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """SHA-256 of the metadata and of names, types, shapes and numbers."""
    total = hashlib.sha256(json.dumps(sorted(metadata.items())).encode())
    for name in sorted(weights):
        values = weights[name].detach().cpu().contiguous()
        total.update(f"{name} {values.dtype} {tuple(values.shape)}".encode())
        total.update(values.flatten().view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


def _model_of(weights: Mapping[str, Tensor], path: Path) -> SigmoidBeliefNet:
    """The net whose layers have the sizes of the weights, if all are numbers that a net can have."""
    if not all(isinstance(weight, Tensor) and weight.is_floating_point() for weight in weights.values()):
        raise ValueError(
            f"{path} holds weights that are no floating-point numbers, expected a trained model; use its file"
        )
    if not all(bool(torch.isfinite(weight).all()) for weight in weights.values()):
        raise ValueError(f"{path} holds weights that are not finite, expected numbers; use an earlier checkpoint")
    layers: list[int] = []
    while (weight := weights.get(f"inference.{len(layers)}.weight")) is not None and weight.dim() == 2:
        layers.append(weight.shape[0])
    if not layers:
        raise ValueError(f"{path} holds {sorted(weights)[:3]} ..., expected the weights of a sigmoid belief net")
    model = SigmoidBeliefNet(weights["inference.0.weight"].shape[1], layers).to(weights["inference.0.weight"].dtype)
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise ValueError(f"{path} does not hold a whole {model}: {error}; use the file of a trained model") from error
    return model
