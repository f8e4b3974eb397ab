"""The checkpoints of a run: Lightning's ModelCheckpoint, saving best.ckpt and last.ckpt in the run's folder."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import ModelCheckpoint

from lightning_modules.command_line.console import say
from lightning_modules.run.checkpoints import BEST, LAST


class RunCheckpoint(ModelCheckpoint):
    """One file in the run's folder, written at the end of a validation. Lightning would add a version to a name that is
    taken, and the name of its logger to the folder.

    Args:
        name: of the file.
        monitor: the metric that is compared at every validation; none: every validation replaces the file.
        mode: whether the best is the largest, max, or the smallest, min.
    """

    def __init__(self, name: str, monitor: str | None = None, mode: str = "min") -> None:
        super().__init__(
            filename=Path(name).stem, monitor=monitor, mode=mode, enable_version_counter=False,
            save_on_train_epoch_end=False,
        )  # fmt: skip

    on_train_batch_end = pl.Callback.on_train_batch_end  # nothing is saved there

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Save in the run's folder."""
        self.dirpath = trainer.default_root_dir
        super().setup(trainer, pl_module, stage)


class BestCheckpoint(RunCheckpoint):
    """best.ckpt: the model of the best validation. Lightning's forgets its score when the folder has moved.

    Args:
        monitor: the metric that is compared at every validation.
        mode: whether the best is the largest, max, or the smallest, min.
    """

    def __init__(self, monitor: str = "val/elbo", mode: str = "max") -> None:
        super().__init__(BEST, monitor, mode)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the best score, of the file in today's folder."""
        if state_dict["best_model_path"]:
            path = str(Path(str(self.dirpath), BEST))
            scores = {path: state_dict["best_model_score"]}
            moved = {"best_model_path": path, "kth_best_model_path": path, "best_k_models": scores}
            super().load_state_dict({**state_dict, **moved, "dirpath": self.dirpath})


class LastCheckpoint(RunCheckpoint):
    """last.ckpt, from which a run continues: after every validation, when SIGTERM asks it to end, and at its end."""

    def __init__(self) -> None:
        super().__init__(LAST)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Several ranks end at once at SIGTERM: Lightning would let them wait for each other without end."""
        super().on_train_start(trainer, pl_module)
        self.on_test_start(trainer, pl_module)

    def on_test_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """The same, since Lightning's test takes the signal again."""
        if trainer.world_size > 1:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def on_train_batch_end(self, trainer: pl.Trainer, *args: Any) -> None:
        """Save if Lightning is about to end the run; before a validation, which the run would miss, it is too early."""
        if trainer.received_sigterm and trainer.global_step % (trainer.val_check_batch or 1):
            self._save(trainer)
            say(f"step {trainer.global_step} is saved")

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Save the end of a run that stopped between two validations."""
        self._save(trainer)

    def _save(self, trainer: pl.Trainer) -> None:
        if not self._should_skip_saving_checkpoint(trainer):
            self._save_topk_checkpoint(trainer, self._monitor_candidates(trainer))
