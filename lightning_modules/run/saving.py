"""When a run saves its checkpoints: Lightning's ModelCheckpoint, for runs that are moved, or ended by a signal."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint

from lightning_modules.run.checkpoints import BEST, KNOWS_BEST, LAST
from lightning_modules.run.csv_files import csv_loggers
from lightning_modules.run.signals import SIGNALS, ended_by

STEPS_BETWEEN_AGREEMENTS = 50  # of several ranks, on whether to save now


class BestCheckpoint(ModelCheckpoint):
    """best.ckpt in the run's folder. Lightning's forgets the best score when the folder has moved; this one does not.

    Args:
        monitor: the metric that is compared at every validation.
        mode: whether the best is the largest, max, or the smallest, min.
    """

    on_train_batch_end = pl.Callback.on_train_batch_end  # nothing is saved there

    def __init__(self, monitor: str = "val/elbo", mode: str = "max") -> None:
        super().__init__(
            filename=Path(BEST).stem, monitor=monitor, mode=mode, enable_version_counter=False,
            save_on_train_epoch_end=False,
        )  # fmt: skip

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Save in the run's folder."""
        self.dirpath = trainer.default_root_dir
        super().setup(trainer, pl_module, stage)

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Note that there is a best model; a run cannot be continued without it."""
        checkpoint[KNOWS_BEST] = bool(self.best_model_path)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the best score if its file is here: another run's best model is not in this run's folder."""
        path = str(Path(str(self.dirpath), BEST))
        if Path(path).is_file() and state_dict["best_model_path"]:
            best = state_dict["best_model_score"]
            here = {"dirpath": self.dirpath, "best_k_models": {path: best}}
            super().load_state_dict({**state_dict, **here, "best_model_path": path, "kth_best_model_path": path})


class LastCheckpoint(ModelCheckpoint):
    """last.ckpt in the run's folder: after every validation, some minutes after the last save, and at the end.

    And when a signal asks the run to end. Lightning's can save every few minutes, too, but also just before the numbers
    of a step are logged, which a run that continues from there would miss.

    Args:
        minutes: of training between two checkpoints, at most.
    """

    def __init__(self, minutes: float = 5.0) -> None:
        super().__init__(filename=Path(LAST).stem, enable_version_counter=False, save_on_train_epoch_end=False)
        self.minutes = minutes
        self._saved_at = 0.0
        if not minutes > 0:
            raise ValueError(f"minutes is {minutes}, expected a positive number; the default is 5")

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Save in the run's folder."""
        self.dirpath = trainer.default_root_dir
        super().setup(trainer, pl_module, stage)

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Refuse to replace the last good checkpoint by broken weights; sync the rows that are logged so far."""
        bad = [name for name, value in pl_module.named_parameters() if not bool(torch.isfinite(value).all())]
        if bad:
            raise FloatingPointError(
                f"after step {trainer.global_step} these parameters are not finite: {', '.join(bad)}; expected finite "
                f"numbers; the last good checkpoint is kept, continue from it with a lower learning rate"
            )
        checkpoint["callbacks"].pop("Timer", None)  # a limit of time is that of one command, not of the run
        for logger in csv_loggers(trainer):
            logger.sync()
        self._saved_at = time.monotonic()

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """From now on a signal waits for the end of a step."""
        super().on_train_start(trainer, pl_module)
        SIGNALS.listen()
        SIGNALS.is_training = True
        self._saved_at = time.monotonic()

    def on_train_batch_end(self, trainer: pl.Trainer, *args: Any) -> None:
        """Save if it is time; end if a signal asked for it."""
        is_due = SIGNALS.received is not None or time.monotonic() - self._saved_at > 60 * self.minutes
        if trainer.world_size > 1:  # all ranks save together, when rank 0 says so
            if trainer.global_step % STEPS_BETWEEN_AGREEMENTS != 1:  # 1: round numbers of steps are logged
                return
            is_due, SIGNALS.received = trainer.strategy.broadcast((is_due, SIGNALS.received))
        if is_due and not self._is_reported(trainer):
            self._save(trainer)
            self._end_if_asked(trainer)

    @staticmethod
    def _is_reported(trainer: pl.Trainer) -> bool:
        """Whether the step's numbers are about to be logged, or a validation follows: the next step can be saved."""
        every: int = trainer.log_every_n_steps  # type: ignore[attr-defined]
        intervals = [each for each in (every, trainer.val_check_batch) if isinstance(each, int) and each > 1]
        return any(trainer.global_step % each == 0 for each in intervals)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Save the end of a run that stopped between two validations."""
        SIGNALS.is_training = False
        self._save(trainer)
        self._end_if_asked(trainer)

    def _save(self, trainer: pl.Trainer) -> None:
        if not self._should_skip_saving_checkpoint(trainer):
            self._save_topk_checkpoint(trainer, self._monitor_candidates(trainer))

    @staticmethod
    def _end_if_asked(trainer: pl.Trainer) -> None:
        if SIGNALS.received is not None:
            raise ended_by(
                SIGNALS.received,
                f"step {trainer.global_step} of {trainer.max_steps} is saved; the same command continues from there",
            )
