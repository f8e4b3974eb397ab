"""Where runs live and what tells one from another: results/runs/<architecture>/<estimator>/seed<k>/.

A run is identified by its saved config, never by its folder's name: when the folder is taken by a run with other
settings, the next free name (seed0-2, seed0-3, ...) is used and nothing is overwritten.
"""

from __future__ import annotations

import copy
import json
import os
import platform
import re
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
import yaml
from jsonargparse import ArgumentParser

from lightning_modules.binarized_mnist import BinarizedMNIST
from lightning_modules.run.checkpoint_content import check_belongs
from lightning_modules.run.checkpoints import load_run_checkpoint
from lightning_modules.sbn_module import SBNModule
from releg.machine import cores

CONFIG, PROVENANCE, RESULT = "config.yaml", "provenance.json", "result.json"
# Settings that cannot change a result, or only say where things lie
NO_PART_OF_IDENTITY = (
    "config",
    "results_dir",
    "ckpt_path",
    "weights_only",
    "verbose",
    "data.data_dir",
    "trainer.default_root_dir",
    "trainer.logger",
    "trainer.enable_progress_bar",
    "trainer.enable_model_summary",
    "trainer.enable_checkpointing",
    "trainer.plugins",
)
PACKAGES = ("torch", "torchvision", "pytorch-lightning", "torchmetrics", "numba", "numpy")


def find_run_folder(results_dir: Path, config: dict[str, Any]) -> Path:
    """The folder of the run with this config: the one that holds it already, or the first free one."""
    wanted = identity(config)
    first = results_dir / "runs" / architecture_of(config) / estimator_of(config) / f"seed{config['seed_everything']}"
    number = 1
    folder = first
    while (folder / CONFIG).is_file() and identity(read_config(folder)) != wanted:
        number += 1
        folder = first.with_name(f"{first.name}-{number}")
    return folder


def identity(config: dict[str, Any]) -> dict[str, Any]:
    """All settings that can change a run's result, flat: {"model.loss": "sum", ...}."""
    flat = _flatten(config)
    return {
        key: value
        for key, value in flat.items()
        if not any(key == name or key.startswith(f"{name}.") for name in NO_PART_OF_IDENTITY)
    }


def read_config(folder: Path) -> dict[str, Any]:
    """The saved config of a run; ValueError if it is damaged."""
    try:
        config = yaml.safe_load((folder / CONFIG).read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(_damaged(folder)) from error
    if not isinstance(config, dict) or not {"model", "data", "trainer"} <= set(config):
        raise ValueError(_damaged(folder))
    return config


def _damaged(folder: Path) -> str:
    return f"{folder / CONFIG} is damaged, expected the saved config of a run; move the folder {folder} away"


def architecture_of(config: dict[str, Any]) -> str:
    """As the paper writes it, deepest first: 32-64-128-256."""
    return "-".join(str(size) for size in reversed(config["model"]["layers"]))


def estimator_of(config: dict[str, Any]) -> str:
    """CommonRandomNumbers -> common_random_numbers, the name of its file."""
    return snake_case(config["model"]["estimator"]["class_path"].rsplit(".", 1)[-1])


def snake_case(name: str) -> str:
    """CommonRandomNumbers -> common_random_numbers."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def load_run(checkpoint: Path, data_dir: Path | None = None) -> tuple[SBNModule, BinarizedMNIST]:
    """The module, with the checkpoint's weights, and the data of the run that a checkpoint lies in.

    Args:
        checkpoint: a file in the folder of a run.
        data_dir: where the data lie if no longer where the run had them.
    """
    state = load_run_checkpoint(checkpoint)
    if not (checkpoint.parent / CONFIG).is_file():
        raise FileNotFoundError(f"there is no {CONFIG} beside {checkpoint}, expected the run's own; keep them together")
    config = read_config(checkpoint.parent)
    if data_dir is not None:
        config["data"]["data_dir"] = str(data_dir)
    module, data = build(config)
    identity = {
        "architecture": module.model.architecture,
        "estimator": type(module.estimator).__name__,
        "data": data.checksum,
    }
    fix = f"{checkpoint} and the {CONFIG} beside it are of different runs; keep the files of a run together"
    check_belongs(state, identity, module.state_dict(), fix)
    module.load_state_dict(state["state_dict"])
    return module.eval(), data


def build(config: dict[str, Any]) -> tuple[SBNModule, BinarizedMNIST]:
    """The module, with its initial weights, and the data that a config describes."""
    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(SBNModule, "model")
    parser.add_class_arguments(BinarizedMNIST, "data")
    described = copy.deepcopy({key: config[key] for key in ("model", "data")})  # the parser writes into it
    built = parser.instantiate(parser.parse_object(described))
    return built.model, built.data


def write_atomically(path: Path, text: str) -> None:
    """The name appears, or changes, only when the text is whole on disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with temporary.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def save_config(folder: Path, config: dict[str, Any]) -> None:
    """Write config.yaml."""
    write_atomically(folder / CONFIG, yaml.safe_dump(config, sort_keys=False))


def record_provenance(folder: Path, data_checksum: str) -> None:
    """Add one entry to provenance.json: a run that was interrupted has several."""
    path = folder / PROVENANCE
    try:
        entries = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        entries = []
    entries = [*(entries if isinstance(entries, list) else []), provenance() | {"data_sha256": data_checksum}]
    write_atomically(path, json.dumps(entries, indent=2) + "\n")


def _program() -> str:
    """What was started; `python -m lightning_modules.cli` is the releg command."""
    name = Path(sys.argv[0]).name
    return "releg" if name == "cli.py" else name


def provenance() -> dict[str, Any]:
    """Commit, versions, hardware and command line of this process."""
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "command": [_program(), *sys.argv[1:]],
        "commit": _git("rev-parse", "HEAD"),
        "uncommitted_changes": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": cores(),
        "torch_threads": torch.get_num_threads(),
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
    }


def _git(*arguments: str) -> str:
    root = Path(__file__).parents[2]
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")


def _flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(value, dict) or not value:
        return {prefix: value}
    parts = (_flatten(inner, f"{prefix}.{key}" if prefix else str(key)) for key, inner in value.items())
    return {key: inner for part in parts for key, inner in part.items()}
