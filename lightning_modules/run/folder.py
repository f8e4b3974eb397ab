"""Where runs live and what tells one from another: results/runs/<architecture>/<estimator>/seed<k>/.

Runs on another data set than BinarizedMNIST have a folder of their own: results/runs/<data set>/<architecture>/...

A run is identified by its saved config, never by its folder's name: when the folder is taken by a run with other
settings, the next free name (seed0-2, seed0-3, ...) is used and nothing is overwritten.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from lightning_modules.files import write_atomically
from releg.architecture import architecture_name

CONFIG, RESULT = "config.yaml", "result.json"
DEFAULT_DATA = "lightning_modules.binarized_mnist.BinarizedMNIST"
# Settings that cannot change a result, or only say where things lie
NO_PART_OF_IDENTITY = (
    "config",
    "results_dir",
    "ckpt_path",
    "weights_only",
    "verbose",
    "data.data_dir",
    "data.init_args.data_dir",
    "trainer.default_root_dir",
    "trainer.logger",
    "trainer.enable_progress_bar",
    "trainer.enable_model_summary",
    "trainer.enable_checkpointing",
    "trainer.plugins",
)


def find_run_folder(results_dir: Path, config: dict[str, Any]) -> Path:
    """The folder of the run with this config: the one that holds it already, or the first free one."""
    wanted = identity(config)
    runs = results_dir / "runs" / data_of(config)
    first = runs / architecture_of(config) / estimator_of(config) / f"seed{config['seed_everything']}"
    number = 1
    folder = first
    while (folder / CONFIG).is_file() and identity(read_config(folder)) != wanted:
        number += 1
        folder = first.with_name(f"{first.name}-{number}")
    return folder


def identity(config: dict[str, Any]) -> dict[str, Any]:
    """All settings that can change a run's result, flat: {"model.loss": "sum", ...}."""
    flat = _flatten(plain(config))
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
    _name_the_optimizer(config["model"])
    return config


def _name_the_optimizer(model: dict[str, Any]) -> None:
    """Configs saved before the optimiser could be chosen have RMSprop's settings among the model's."""
    old = {"learning_rate": "lr", "smoothing": "alpha", "epsilon": "eps"}
    settings = {new: model.pop(name) for name, new in old.items() if name in model}
    if settings:
        model["optimizer"] = {"class_path": "torch.optim.RMSprop", "init_args": settings}


def _damaged(folder: Path) -> str:
    return f"{folder / CONFIG} is damaged, expected the saved config of a run; move the folder {folder} away"


def plain(config: dict[str, Any]) -> dict[str, Any]:
    """A config in the form that is saved: the settings of BinarizedMNIST stand under `data` without its class path."""
    data = config["data"]
    is_default = isinstance(data, dict) and data.get("class_path") == DEFAULT_DATA
    return config | {"data": data.get("init_args", {})} if is_default else config


def data_settings(config: dict[str, Any]) -> dict[str, Any]:
    """The arguments of the data module, whichever it is."""
    settings: dict[str, Any] = config["data"].get("init_args", {}) if "class_path" in config["data"] else config["data"]
    return settings


def data_of(config: dict[str, Any]) -> str:
    """BinarizedFashionMNIST -> binarized_fashion_mnist; empty for BinarizedMNIST."""
    return snake_case(plain(config)["data"].get("class_path", "").rsplit(".", 1)[-1])


def architecture_of(config: dict[str, Any]) -> str:
    """As the paper writes it, deepest first: 32-64-128-256."""
    return architecture_name(config["model"]["layers"])


def estimator_of(config: dict[str, Any]) -> str:
    """CommonRandomNumbers -> common_random_numbers, the name of its file."""
    return snake_case(config["model"]["estimator"]["class_path"].rsplit(".", 1)[-1])


def snake_case(name: str) -> str:
    """CommonRandomNumbers -> common_random_numbers."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def save_config(folder: Path, config: dict[str, Any]) -> None:
    """Write config.yaml."""
    write_atomically(folder / CONFIG, yaml.safe_dump(config, sort_keys=False))


def _flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(value, dict) or not value:
        return {prefix: value}
    parts = (_flatten(inner, f"{prefix}.{key}" if prefix else str(key)) for key, inner in value.items())
    return {key: inner for part in parts for key, inner in part.items()}
