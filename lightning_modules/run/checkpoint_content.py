"""What the checkpoint of a run holds, and which run it belongs to; all that does not fit is refused and named."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

RANKS = "number of ranks"
PARTS = {  # what Lightning and this project read from a checkpoint
    "state_dict": dict,
    "identity": dict,
    "global_step": int,
    "epoch": int,
    "loops": dict,
    "callbacks": dict,
    "optimizer_states": list,
    "lr_schedulers": list,
    "pytorch-lightning_version": str,
}


def check_parts(checkpoint: Mapping[str, Any], path: Path) -> None:
    """ValueError unless all parts are there."""
    bad = [name for name, kind in PARTS.items() if not isinstance(checkpoint.get(name), kind)]
    if not bad and not all(isinstance(value, Tensor) for value in checkpoint["state_dict"].values()):
        bad = ["state_dict"]
    if bad:
        raise ValueError(
            f"{path} has no good {', '.join(bad)}, expected the checkpoint of a run; use one written by releg fit"
        )


def check_belongs(
    checkpoint: Mapping[str, Any], identity: Mapping[str, Any], weights: Mapping[str, Tensor], fix: str
) -> None:
    """ValueError, naming the first difference, unless the checkpoint is of this run.

    Args:
        checkpoint: whose parts were checked.
        identity: of the run: architecture, estimator, data and, where it matters, number of ranks.
        weights: the run's own, in which those of the checkpoint must fit.
        fix: what the user can do.
    """
    for key, here in identity.items():
        there = checkpoint["identity"].get(key, 1 if key == RANKS else None)
        if there != here:
            raise ValueError(f"the checkpoint's {key} is {there}, expected {here}; {fix}")
    found = {name: tuple(value.shape) for name, value in checkpoint["state_dict"].items()}
    expected = {name: tuple(value.shape) for name, value in weights.items()}
    for name in sorted({*found, *expected}):
        if found.get(name) != expected.get(name):
            raise ValueError(
                f"the checkpoint's {name} has shape {found.get(name, 'none: it is missing')}, "
                f"expected {expected.get(name, 'no such weights')}; {fix}"
            )
