"""What tells one run from another: the settings that can change its result.

An absent setting means its default, and so does null: a config that was saved before a setting existed, here or in
Lightning's Trainer, is the same run as one that has the setting at its default.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import pytorch_lightning as pl
from torch import Tensor

from lightning_modules.binary_images import BinaryImages
from lightning_modules.command_line.untrusted_configs import read_yaml
from lightning_modules.run.settings import BASE, Config, class_defaults, complete, data_settings, default_config, listed
from lightning_modules.sbn_module import INSTANTIATOR, SBNModule

# Settings that cannot change a result, or only say where things are; the seeds follow seed_everything
NO_PART_OF_IDENTITY = (
    *("config", "results_dir", "ckpt_path", "weights_only", "verbose", "trainer.default_root_dir", "trainer.logger"),
    *("data.data_dir", "data.init_args.data_dir", "data.seed", "data.init_args.seed", "model.seed", "model.data_size"),
    *("trainer.enable_progress_bar", "trainer.enable_model_summary", "trainer.enable_checkpointing"),
    *("trainer.enable_autolog_hparams", "trainer.num_sanity_val_steps", "trainer.profiler"),
)
# Settings that do not change the weights: a checkpoint can be tested with others
OF_EVALUATION = (
    *("trainer", "model.val_samples", "model.test_samples", "data.eval_batch_size", "data.init_args.eval_batch_size"),
)
MUST_FIT = ("architecture", "estimator", "data")
RANKS = "number of ranks"
PARTS = ("logger", "callbacks", "plugins")  # of a Trainer, which base.yaml lists


def settings_of(config: Config) -> dict[str, Any]:
    """All settings that can change a run's result, flat: {"model.loss": "sum", ...}."""
    whole = complete(config)
    whole["trainer"] = whole["trainer"] | {name: added(name, whole["trainer"].get(name)) or None for name in PARTS}
    flat = _flatten({**whole, "data": data_settings(whole["data"])})
    return {key: value for key, value in flat.items() if not _is_under(key, NO_PART_OF_IDENTITY) and value is not None}


def added(name: str, parts: Any) -> list[Any]:
    """The loggers, callbacks or plugins that are not base.yaml's: those watch a run and do not change it."""
    return [
        part for part in listed(parts) if not isinstance(part, bool) and part["class_path"] not in _of_every_run()[name]
    ]


@lru_cache
def _of_every_run() -> dict[str, set[str]]:
    trainer = read_yaml(BASE)["trainer"]
    return {name: {part["class_path"] for part in trainer[name]} for name in PARTS}


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The settings in which two runs differ, each with its two values."""
    here, there = _with_defaults(one), _with_defaults(other)
    pairs = {key: (here.get(key), there.get(key)) for key in sorted({*one, *other})}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def _with_defaults(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Flat settings that may be older than some of the defaults, those of the classes they name included."""
    known = {key: complete(value) for key, value in settings.items() if value is not None}
    of_classes = {
        f"{key.removesuffix('class_path')}init_args.{name}": default
        for key, class_path in known.items()
        if key.endswith(".class_path")
        for name, default in class_defaults(class_path).items()
    }
    return _defaults() | of_classes | known


@lru_cache
def _defaults() -> dict[str, Any]:
    return settings_of(default_config())


def identity_of(config: Config, module: SBNModule, data: BinaryImages, ranks: int = 1) -> dict[str, Any]:
    """What a checkpoint says about the run that it belongs to."""
    settings = settings_of(config)
    return {
        "architecture": module.model.architecture,
        "estimator": type(module.estimator).__name__,
        "data": data.checksum,
        RANKS: ranks,
        "settings": settings,
        "hash": hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode()).hexdigest()[:16],
    }


class Stamp(pl.Callback):
    """Says in every checkpoint which run it belongs to and, the way LightningCLI does, how to build its module.

    Args:
        identity: of the run.
        module_settings: from which SBNModule.load_from_checkpoint builds the module.
    """

    def __init__(self, identity: Mapping[str, Any], module_settings: Mapping[str, Any]) -> None:
        self.content = {
            "identity": dict(identity),
            "hyper_parameters": {**module_settings, "_instantiator": INSTANTIATOR},
        }

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Add both."""
        checkpoint.update(self.content)


def check_fits(
    checkpoint: Mapping[str, Any], identity: Mapping[str, Any], weights: Mapping[str, Tensor], fix: str
) -> None:
    """Raise ValueError, naming the first difference, unless architecture, estimator and data are the checkpoint's.

    Args:
        checkpoint: with all its parts.
        identity: of the run.
        weights: the run's own, in which those of the checkpoint must fit.
        fix: what the user can do.
    """
    for key in MUST_FIT:
        _compare(key, checkpoint["identity"].get(key), identity[key], fix)
    found = {name: tuple(value.shape) for name, value in checkpoint["state_dict"].items()}
    expected = {name: tuple(value.shape) for name, value in weights.items()}
    for name in sorted({*found, *expected}):
        if found.get(name) != expected.get(name):
            raise ValueError(
                f"the checkpoint's {name} has shape {found.get(name, 'none: it is missing')}, "
                f"expected {expected.get(name, 'no such weights')}; {fix}"
            )


def check_ranks(checkpoint: Mapping[str, Any], identity: Mapping[str, Any], fix: str) -> None:
    """Raise ValueError unless the checkpoint was trained on the same number of ranks."""
    _compare(RANKS, checkpoint["identity"].get(RANKS, 1), identity[RANKS], fix)


def check_settings(
    checkpoint: Mapping[str, Any], identity: Mapping[str, Any], fix: str, ignored: tuple[str, ...] = ()
) -> None:
    """Raise ValueError, naming the first difference, unless the checkpoint was trained with these settings.

    A checkpoint written before settings were part of it has none to compare.
    """
    settings = checkpoint["identity"].get("settings")
    if isinstance(settings, dict) and checkpoint["identity"].get("hash") != identity["hash"]:
        for key, (there, here) in differences(settings, identity["settings"]).items():
            if not _is_under(key, ignored):
                _compare(key, there, here, fix)


def _compare(key: str, there: Any, here: Any, fix: str) -> None:
    if there != here:
        raise ValueError(f"the checkpoint's {key} is {there}, expected {here}; {fix}")


def _is_under(key: str, names: tuple[str, ...]) -> bool:
    return any(key == name or key.startswith(f"{name}.") for name in names)


def _flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(value, dict) or not value:
        return {prefix: value}
    parts = (_flatten(inner, f"{prefix}.{key}" if prefix else str(key)) for key, inner in value.items())
    return {key: inner for part in parts for key, inner in part.items()}
