"""What tells one run from another: the settings that can change its result.

An absent setting means its default: a config that was saved before a setting existed, here or in Lightning's Trainer,
is the same run as one that has the setting at its default.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any

import pytorch_lightning as pl
from torch import Tensor

from lightning_modules.binarized_mnist import BinarizedMNIST
from lightning_modules.binary_images import BinaryImages
from lightning_modules.command_line.untrusted_configs import read_yaml
from lightning_modules.run.settings import BASE, DEFAULT_OPTIMIZER, Config, data_settings, listed
from lightning_modules.sbn_module import INSTANTIATOR, SBNModule

# Settings that cannot change a result, or only say where things are; the seeds follow seed_everything
NO_PART_OF_IDENTITY = (
    *("results_dir", "trainer.default_root_dir", "trainer.logger"),
    *("data.data_dir", "data.init_args.data_dir", "data.seed", "data.init_args.seed", "model.seed", "model.data_size"),
    *("trainer.enable_progress_bar", "trainer.enable_model_summary", "trainer.enable_checkpointing"),
    *("trainer.enable_autolog_hparams", "trainer.num_sanity_val_steps", "trainer.profiler"),
)
# Settings that do not change the weights: a checkpoint can be tested with others
OF_EVALUATION = (
    *("trainer", "model.val_samples", "model.test_samples", "data.eval_batch_size", "data.init_args.eval_batch_size"),
)
# Options that classes no longer take, with what their defaults were: earlier runs recorded them
GONE = {
    **{"at_end": True, "engine": "auto", "memory_mib": 256.0},
    **dict.fromkeys(("entropy", "shared_noise", "variance_normalization"), False),
}
MUST_FIT = ("architecture", "estimator", "data")
RANKS = "number of ranks"
OWN_PACKAGES = ("releg", "lightning_modules")
PARTS = ("logger", "callbacks", "plugins")  # of a Trainer, which base.yaml lists


def settings_of(config: Config) -> dict[str, Any]:
    """All settings that can change a run's result, flat: {"model.loss": "sum", ...}."""
    parts = {name: added(config["trainer"].get(name)) or None for name in PARTS}
    flat = _flatten({**config, "trainer": {**config["trainer"], **parts}, "data": data_settings(config["data"])})
    return {key: value for key, value in flat.items() if not _is_under(key, NO_PART_OF_IDENTITY)}


def added(parts: Any) -> list[Any]:
    """The loggers, callbacks or plugins besides those of this package, which watch a run and do not change it."""
    described = [part for part in listed(parts) if not isinstance(part, bool)]
    return [part for part in described if not part["class_path"].startswith(f"{__package__}.")]


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The settings in which two runs differ, each with its two values."""
    left, right = (_flatten(dict(settings), into_lists=True) for settings in (one, other))
    names = sorted({*left, *right})
    left, right = {**_defaults(left), **left}, {**_defaults(right), **right}
    pairs = {name: (left.get(name), right.get(name)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _defaults(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What base.yaml says, the defaults of the classes beneath it, and of those that these flat settings name."""
    base = read_yaml(BASE)
    classes = {"trainer": pl.Trainer, "model": SBNModule, "data": BinarizedMNIST}
    parts: dict[str, Any] = {name: class_defaults(kind) | base[name] for name, kind in classes.items()}
    parts["model"]["optimizer"] = DEFAULT_OPTIMIZER
    of_classes = {
        f"{name.removesuffix('class_path')}init_args.{key}": default
        for name, class_path in settings.items()
        if name.endswith(".class_path")
        for key, default in {**GONE, **class_defaults(_class_at(str(class_path)))}.items()
    }
    return settings_of({**base, **parts}) | of_classes


def _class_at(class_path: str) -> Any:
    """A class that is loaded already, or one of this project; None instead of any other."""
    module, _, name = class_path.rpartition(".")
    if module.split(".")[0] in OWN_PACKAGES:
        with suppress(ImportError):
            import_module(module)
    return getattr(sys.modules.get(module), name, None)


def class_defaults(kind: Any) -> dict[str, Any]:
    """The plain defaults in a class's signature."""
    parameters = inspect.signature(kind).parameters.values() if isinstance(kind, type) else ()
    return {each.name: each.default for each in parameters if isinstance(each.default, (bool, int, float, str))}


def identity_of(config: Config, module: SBNModule, data: BinaryImages, ranks: int = 1) -> dict[str, Any]:
    """What a checkpoint says about the run that it belongs to."""
    return {
        "architecture": module.model.architecture,
        "estimator": type(module.estimator).__name__,
        "data": data.checksum,
        RANKS: ranks,
        "settings": settings_of(config),
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
    """Raise ValueError, naming the first difference, unless the checkpoint was trained with these settings."""
    for key, (there, here) in differences(checkpoint["identity"]["settings"], identity["settings"]).items():
        if not _is_under(key, ignored):
            _compare(key, there, here, fix)


def _compare(key: str, there: Any, here: Any, fix: str) -> None:
    if there != here:
        raise ValueError(f"the checkpoint's {key} is {there}, expected {here}; {fix}")


def _is_under(key: str, names: tuple[str, ...]) -> bool:
    return any(key == name or key.startswith(f"{name}.") for name in names)


def _flatten(value: Any, prefix: str = "", into_lists: bool = False) -> dict[str, Any]:
    if into_lists and isinstance(value, list):
        value = dict(enumerate(value))
    if not isinstance(value, dict) or not value:
        return {prefix: value}
    parts = (_flatten(inner, f"{prefix}.{key}" if prefix else str(key), into_lists) for key, inner in value.items())
    return {key: inner for part in parts for key, inner in part.items()}
