"""The settings of a run as plain values: found, completed by defaults, and turned into a module and its data."""

from __future__ import annotations

import copy
import importlib
import inspect
import json
import sys
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import pytorch_lightning as pl
from jsonargparse import ArgumentParser
from pytorch_lightning.cli import LightningArgumentParser

from lightning_modules import CONFIGS
from lightning_modules.binarized_mnist import BinarizedMNIST
from lightning_modules.binary_images import BinaryImages
from lightning_modules.command_line.untrusted_configs import read_yaml
from lightning_modules.sbn_module import SBNModule
from lightning_modules.shipped_estimators import import_all
from releg.records.names import snake_case
from releg.rmsprop import PAPER

Config = dict[str, Any]  # as config.yaml keeps it
BASE = CONFIGS / "base.yaml"  # every command starts from it
OWN_PACKAGES = ("releg", "lightning_modules")
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


def estimator_name(config: Config, given: Iterable[Path] = ()) -> str:
    """The name of the estimator of a run, after the first of these files that describes it, or a shipped one."""
    chosen = complete(config["model"]["estimator"])
    for file in [*given, *sorted((CONFIGS / "estimator").glob("*.yaml"))]:
        if _estimator_in(file, chosen["class_path"]) == chosen:
            return file.stem
    return snake_case(chosen["class_path"].rsplit(".", 1)[-1])


def _estimator_in(file: Path, class_path: str) -> Config | None:
    """The estimator in a config file, if the file describes one of that class and nothing else."""
    try:
        content = read_yaml(file)
        estimator = content["model"]["estimator"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    only = set(content) == {"model"} and set(content["model"]) == {"estimator"} and isinstance(estimator, dict)
    return complete(estimator) if only and estimator.get("class_path") == class_path else None


@lru_cache
def default_config() -> Config:
    """The default of every setting that has one in a signature."""
    return {
        "seed_everything": 0,
        "trainer": class_defaults(f"{pl.__name__}.Trainer"),
        "model": {**class_defaults(f"{SBNModule.__module__}.{SBNModule.__name__}"), "optimizer": DEFAULT_OPTIMIZER},
        "data": class_defaults(DEFAULT_DATA),
    }


def data_settings(data: Config) -> Config:
    """The data part of a config; for BinarizedMNIST without its class path, as it is saved."""
    return data.get("init_args", {}) if data.get("class_path") == DEFAULT_DATA else data


def listed(parts: Any) -> list[Any]:
    """The loggers, callbacks or plugins of a Trainer, which takes one of each as well as a list or none."""
    return list(parts) if isinstance(parts, (list, tuple)) else [] if parts is None else [parts]


def without_nulls(config: Any, defaults: Any) -> Any:
    """A config in which null is kept only where it is not the default."""
    if not isinstance(config, dict):
        return config
    known = defaults if isinstance(defaults, dict) else {}
    return {
        key: without_nulls(value, known.get(key))
        for key, value in config.items()
        if value is not None or known.get(key) is not None
    }


def complete(value: Any) -> Any:
    """A setting, with the defaults of the classes it names filled in. Imports none but the project's own."""
    if isinstance(value, list):
        return [complete(each) for each in value]
    if not isinstance(value, dict):
        return value
    inner = {key: complete(each) for key, each in value.items()}
    if "class_path" in inner:
        inner["init_args"] = class_defaults(inner["class_path"]) | (inner.get("init_args") or {})
    return inner


@lru_cache
def class_defaults(class_path: str) -> Config:
    """The plain defaults of a class; those of a user's class only if it is loaded already."""
    module, _, name = class_path.rpartition(".")
    try:
        if module.split(".")[0] in OWN_PACKAGES:
            importlib.import_module(module)
        parameters = inspect.signature(getattr(sys.modules[module], name)).parameters
        return {
            each.name: json.loads(json.dumps(each.default)) for each in parameters.values() if _is_plain(each.default)
        }
    except (ImportError, KeyError, AttributeError, TypeError, ValueError):
        return {}


def _is_plain(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_is_plain(each) for each in value)
    return isinstance(value, (bool, int, float, str))


def find_config(name: str) -> str:
    """The path of a config that the user names, a file or a shipped one; FileNotFoundError if there is neither."""
    for path in (Path(name), CONFIGS / name):
        if path.is_file():
            read_yaml(path)  # refused here, before the parser writes out its aliases
            return str(path)
    shipped = sorted(str(path.relative_to(CONFIGS)) for path in CONFIGS.rglob("*.yaml"))
    raise FileNotFoundError(f"there is no config {name}, expected a file or one of {', '.join(shipped)}; name one")
