"""Arguments of the Trainer: each of them acts, or is refused with a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import LearningRateMonitor, ProgressBar

from lightning_modules.command_line.untrusted_configs import read_yaml
from lightning_modules.run.checkpoints import SafeCheckpointIO
from lightning_modules.run.saving import BestCheckpoint, LastCheckpoint
from lightning_modules.run.settings import BASE, listed
from lightning_modules.sbn_module import check_precision

# What a run cannot follow: the values that it can, and why
REFUSED: dict[str, tuple[tuple[Any, ...], str]] = {
    "default_root_dir": ((None,), "no folder, since that of a run follows from its settings; use --results_dir"),
    "enable_checkpointing": ((None, True), "true, since a run is continued from its checkpoints; leave it out"),
    "use_distributed_sampler": ((True,), "true: the data sets divide their images among the ranks; leave it out"),
    "sync_batchnorm": ((False,), "false, since the nets have no batch normalisation; leave it out"),
    "model_registry": ((None,), "none, since checkpoints stay in the run's folder; leave it out"),
}
NOT_ZERO = (
    *("max_steps", "max_epochs", "val_check_interval", "check_val_every_n_epoch", "log_every_n_steps"),
    *("limit_train_batches", "accumulate_grad_batches"),
)
NEEDED = (BestCheckpoint, LastCheckpoint, SafeCheckpointIO)  # a run is continued by these


def check_trainer(trainer: Mapping[str, Any], command: str) -> None:
    """ValueError for what would be dropped, could not work, or would fail only after training."""
    for name, (accepted, expected) in REFUSED.items():
        if (value := trainer.get(name)) not in accepted:
            raise ValueError(f"trainer.{name} is {value}, expected {expected}")
    ours = read_yaml(BASE)["trainer"]  # null would be Lightning's default instead
    for name, default in {"accumulate_grad_batches": 1, **ours}.items():
        if default is not None and trainer.get(name, default) is None:
            raise ValueError(f"trainer.{name} is null, expected a value; leave it out for {default}")
    for name in (*NOT_ZERO, f"limit_{'val' if command == 'validate' else 'test'}_batches"):
        if trainer.get(name) == 0 and trainer[name] is not False:
            raise ValueError(f"trainer.{name} is 0, expected a positive number; leave it out for the default")
    check_precision(trainer.get("precision"))


def adjusted(given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments whose parts Lightning would refuse together: one progress bar, if any; rates only if they are logged.

    A run that is shorter than the interval between validations still ends with one.
    """
    interval, steps = given["val_check_interval"], given["max_steps"]
    callbacks, plugins = listed(given["callbacks"]), listed(given["plugins"])
    for kind in NEEDED:
        if not any(isinstance(part, kind) for part in (*callbacks, *plugins)):
            raise ValueError(
                f"trainer has no {kind.__name__}, expected all of base.yaml and your own; add to its lists by "
                "callbacks+: or plugins+: in a config, or by --trainer.callbacks+= on the command line"
            )
    return {
        "callbacks": _callbacks(callbacks, given["enable_progress_bar"], given["logger"]),
        "val_check_interval": min(interval, steps) if isinstance(interval, int) and steps > 0 else interval,
    }


def _callbacks(given: list[pl.Callback], has_bar: bool | None, logger: Any) -> list[pl.Callback]:
    bars = [callback for callback in given if isinstance(callback, ProgressBar)]
    left_out: list[pl.Callback] = [*(bars if has_bar is False else bars[:-1])]
    left_out += [callback for callback in given if isinstance(callback, LearningRateMonitor) and logger is False]
    return [callback for callback in given if callback not in left_out]
