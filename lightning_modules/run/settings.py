"""The settings of a run as plain values: where they come from, and the module and data that they describe."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jsonargparse import ArgumentParser
from pytorch_lightning.cli import LightningArgumentParser

from lightning_modules import CONFIGS
from lightning_modules.binarized_mnist import BinarizedMNIST
from lightning_modules.binary_images import BinaryImages
from lightning_modules.command_line.untrusted_configs import read_yaml
from lightning_modules.sbn_module import SBNModule
from lightning_modules.shipped_estimators import ESTIMATOR_CONFIGS, import_all
from releg.records.names import snake_case
from releg.rmsprop import PAPER

Config = dict[str, Any]  # as config.yaml keeps it
BASE = CONFIGS / "base.yaml"  # every command starts from it
DEFAULT_DATA = f"{BinarizedMNIST.__module__}.{BinarizedMNIST.__qualname__}"
DEFAULT_OPTIMIZER = {"class_path": "torch.optim.RMSprop", "init_args": PAPER}


class Settings(NamedTuple):
    """What the user asked for."""

    config: Config
    results_dir: Path
    estimator_name: str


def set_defaults(parser: ArgumentParser) -> None:
    """What jsonargparse cannot see in signatures: the default optimiser and data, and which settings are one."""
    import_all()
    parser.set_defaults({"model.optimizer": DEFAULT_OPTIMIZER, "data": {"class_path": DEFAULT_DATA}})
    parser.link_arguments("data.data_size", "model.data_size", apply_on="instantiate")


def build(config: Config, data_dir: Path | None = None) -> tuple[SBNModule, BinaryImages]:
    """The module, with its initial weights, and the data that a config describes, from another folder if given."""
    parser = LightningArgumentParser(exit_on_error=False)
    parser.add_lightning_class_args(SBNModule, "model")
    parser.add_lightning_class_args(BinaryImages, "data", subclass_mode=True)
    set_defaults(parser)
    described = copy.deepcopy({key: config[key] for key in ("model", "data")})  # the parser writes into it
    if data_dir is not None:
        data = described["data"]
        (data.setdefault("init_args", {}) if "class_path" in data else data)["data_dir"] = str(data_dir)
    built = parser.instantiate(parser.parse_object(described))
    return built.model, built.data


def estimator_name(config: Config, given: Sequence[Path]) -> str:
    """The name of the last shipped estimator's config that was given, if the run has its class; else the class's."""
    class_path = config["model"]["estimator"]["class_path"]
    for file in reversed(given):
        if file.parent == ESTIMATOR_CONFIGS and read_yaml(file)["model"]["estimator"]["class_path"] == class_path:
            return file.stem
    return snake_case(class_path.rsplit(".", 1)[-1])


def data_settings(data: Config) -> Config:
    """The data part of a config; for BinarizedMNIST without its class path, as it is saved."""
    return data.get("init_args", {}) if data.get("class_path") == DEFAULT_DATA else data


def listed(parts: Any) -> list[Any]:
    """The loggers, callbacks or plugins of a Trainer, which takes one of each as well as a list or none."""
    return list(parts) if isinstance(parts, (list, tuple)) else [] if parts is None else [parts]


def find_config(name: str) -> str:
    """The path of a config that the user names, a file or a shipped one; FileNotFoundError if there is neither."""
    for path in (Path(name), CONFIGS / name):
        if path.is_file():
            return str(path)
    shipped = sorted(str(path.relative_to(CONFIGS)) for path in CONFIGS.rglob("*.yaml"))
    raise FileNotFoundError(f"there is no config {name}, expected a file or one of {', '.join(shipped)}; name one")
