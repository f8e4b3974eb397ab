"""Checkpoints that survive: written atomically, carrying their own digest, loaded without running code."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from lightning_fabric.plugins.io.torch_io import TorchCheckpointIO
from torch import Tensor

from lightning_modules.command_line.console import say
from lightning_modules.command_line.error_sentences import NO_ROOM, is_out_of_memory
from lightning_modules.run.csv_files import csv_loggers
from lightning_modules.run.ranks import is_first
from lightning_modules.run.signals import Signals, ended_by
from lightning_modules.run.step_overhead import RunCallback
from lightning_modules.sbn_module import INSTANTIATOR
from releg.checkpoint_file import DIGEST, digest, read
from releg.files import replacing

BEST, LAST, PREVIOUS = "best.ckpt", "last.ckpt", "previous.ckpt"
STEPS_BETWEEN_AGREEMENTS = 50  # of several ranks, on whether to save now
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


class SafeCheckpointIO(TorchCheckpointIO):
    """Writes to a temporary name, syncs and renames. Refuses files that are damaged or contain code."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None) -> None:
        """Write the checkpoint with its digest; the name appears only when the file is whole."""
        target = Path(path)
        try:
            with replacing(target) as file:
                torch.save({**checkpoint, DIGEST: digest(checkpoint)}, file)
        except (OSError, RuntimeError) as error:  # torch's writer turns the system's errors into its own
            if is_out_of_memory(error):
                raise
            cause = error.__context__ if isinstance(error.__context__, OSError) else error
            forbidden = isinstance(cause, OSError) and cause.errno is not None and cause.errno not in NO_ROOM
            wanted = "a file that can be written; change that" if forbidden else "room for it; free some disk space"
            raise OSError(
                f"cannot write {target} ({getattr(cause, 'strerror', None) or cause}), expected {wanted} and run the "
                "same command again; it resumes from the last checkpoint"
            ) from error

    def load_checkpoint(
        self, path: str | Path, map_location: Callable[..., Any] | None = None, weights_only: bool | None = True
    ) -> dict[str, Any]:
        """The checkpoint, on the CPU; always loaded with weights_only, whatever the caller asks."""
        return load_run_checkpoint(Path(path))


def load_checkpoint(path: Path) -> dict[str, Any]:
    """A checkpoint that carries its digest; DamagedCheckpointError, with a sentence, unless it is whole."""
    return read(path, needs_digest=True)


def load_run_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint that has all parts of a run's; ValueError, with a sentence, if not."""
    checkpoint = load_checkpoint(path)
    bad = [name for name, kind in PARTS.items() if not isinstance(checkpoint.get(name), kind)]
    if not bad and not all(isinstance(value, Tensor) for value in checkpoint["state_dict"].values()):
        bad = ["state_dict"]
    if bad:
        raise ValueError(
            f"{path} has a missing or invalid {', '.join(bad)}, expected the checkpoint of a run; use one written by "
            "releg fit"
        )
    return checkpoint


def find_newest(folder: Path, check: Callable[[dict[str, Any]], None]) -> tuple[Path, dict[str, Any]] | None:
    """The newest checkpoint that a run can be continued from, and its content.

    Damaged ones, and those of another run, are reported and skipped. If the best model that a
    checkpoint refers to is lost, the run starts anew and finds it again.

    Args:
        folder: of the run.
        check: raises ValueError if a checkpoint is not of this run.
    """
    best = _usable(folder / BEST, check)
    for name in (LAST, PREVIOUS):
        checkpoint = _usable(folder / name, check)
        if checkpoint is None:
            continue
        best_step = checkpoint["callbacks"].get(RunCheckpoint.__name__, {}).get("best_step", 0)
        if best is None and best_step and best_step == checkpoint["global_step"]:  # it is the best model itself
            if is_first():
                SafeCheckpointIO().save_checkpoint(checkpoint, folder / BEST)
        elif best is None and best_step:
            say(
                f"{folder / BEST} is missing or damaged, expected the best model so far, of step {best_step}; its "
                "steps are trained again"
            )
            continue
        return folder / name, checkpoint
    return None


def _usable(path: Path, check: Callable[[dict[str, Any]], None]) -> dict[str, Any] | None:
    """Load a checkpoint; if it is damaged or of another run, say so and return None."""
    if not path.is_file():
        return None
    try:
        checkpoint = load_run_checkpoint(path)
    except ValueError as error:
        say(f"{error}; skipped")
        return None
    try:
        check(checkpoint)
    except ValueError as error:
        say(f"{path} belongs to another run: {error}; skipped")
        return None
    return checkpoint


class RunCheckpoint(RunCallback):
    """Keeps last.ckpt, the one before it, and best.ckpt by val/elbo.

    Saves after every validation, so that a run continued from last.ckpt neither repeats nor misses one; a few minutes
    after the last save; and when a signal asks the run to end.

    Args:
        identity: of the run; every checkpoint carries it.
        minutes: of training between two checkpoints, at most.
        signals: that ask the run to end.
        module_settings: from which SBNModule.load_from_checkpoint builds the module, if a checkpoint carries them.
    """

    def __init__(
        self,
        identity: Mapping[str, Any],
        minutes: float,
        signals: Signals,
        module_settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.identity = dict(identity)
        self.minutes = minutes
        self.signals = signals
        self.module_settings = module_settings
        self._saved_at = time.monotonic()
        self.best_elbo = float("-inf")
        self.best_step = 0
        self.inherits_best = True  # another run's best model is not in this run's folder
        self.saved_step = -1

    def state_dict(self) -> dict[str, Any]:
        """What a continued run must know."""
        return {"best_elbo": self.best_elbo, "best_step": self.best_step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore it."""
        if self.inherits_best:
            self.best_elbo, self.best_step = state_dict["best_elbo"], state_dict["best_step"]

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Say which run the checkpoint belongs to and, the way LightningCLI does, how to build its module."""
        checkpoint["identity"] = self.identity
        if self.module_settings is not None:
            checkpoint["hyper_parameters"] = {**self.module_settings, "_instantiator": INSTANTIATOR}

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """From now on a signal waits for the end of a step."""
        self.signals.listen()
        self.signals.is_training = True
        self._saved_at = time.monotonic()

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *args: object) -> None:
        """Save if it is time; end if a signal asked for it."""
        is_due = self.signals.received is not None or time.monotonic() - self._saved_at > 60 * self.minutes
        if trainer.world_size > 1:  # all ranks save together, when rank 0 says so
            if trainer.global_step % STEPS_BETWEEN_AGREEMENTS != 1:  # 1: round numbers of steps are logged
                return
            is_due, self.signals.received = trainer.strategy.broadcast((is_due, self.signals.received))
        if is_due and not self._is_reported(trainer):
            self._check_weights(trainer, pl_module)
            self._save_last(trainer)
            self._end_if_asked(trainer)

    @staticmethod
    def _is_reported(trainer: pl.Trainer) -> bool:
        """Whether the step's numbers are about to be logged, or a validation follows: the next step can be saved."""
        every: int = trainer.log_every_n_steps  # type: ignore[attr-defined]
        intervals = [each for each in (every, trainer.val_check_batch) if isinstance(each, int) and each > 1]
        return any(trainer.global_step % each == 0 for each in intervals)

    def _end_if_asked(self, trainer: pl.Trainer) -> None:
        if self.signals.received is not None:
            raise ended_by(
                self.signals.received,
                f"step {trainer.global_step} of {trainer.max_steps} is saved; the same command continues from there",
            )

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Save the best first: after a kill between the two files, the steps since last.ckpt are repeated."""
        if trainer.state.fn != "fit" or trainer.sanity_checking:
            return
        self._check_weights(trainer, pl_module)
        elbo = float(trainer.callback_metrics["val/elbo"])
        if elbo > self.best_elbo:
            self.best_elbo, self.best_step = elbo, trainer.global_step
            trainer.save_checkpoint(self.folder(trainer) / BEST)
        self._save_last(trainer)
        if trainer.world_size == 1:
            self._end_if_asked(trainer)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Save the end of a run that stopped between two validations."""
        self.signals.is_training = False
        if self.saved_step == trainer.global_step:
            return
        self._check_weights(trainer, pl_module)
        self._save_last(trainer)

    @staticmethod
    def folder(trainer: pl.Trainer) -> Path:
        """Where the run lives."""
        return Path(trainer.default_root_dir)

    def _save_last(self, trainer: pl.Trainer) -> None:
        last = self.folder(trainer) / LAST
        if trainer.is_global_zero and last.is_file():
            last.replace(last.with_name(PREVIOUS))
        for logger in csv_loggers(trainer):
            logger.sync()
        trainer.save_checkpoint(last)
        self.saved_step = trainer.global_step
        self._saved_at = time.monotonic()

    @staticmethod
    def _check_weights(trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Refuse to replace the last good checkpoint by one with broken weights."""
        bad = [name for name, value in pl_module.named_parameters() if not bool(torch.isfinite(value).all())]
        if bad:
            raise FloatingPointError(
                f"after step {trainer.global_step} these parameters are not finite: {', '.join(bad)}; expected finite "
                f"numbers; the last good checkpoint is kept, continue from it with a lower learning rate"
            )
