"""Callbacks of a run: its progress, the learning rate, images, and how long it has trained."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import LearningRateMonitor, TQDMProgressBar
from pytorch_lightning.callbacks.progress.tqdm_progress import Tqdm
from pytorch_lightning.loggers import TensorBoardLogger
from pytorch_lightning.utilities.rank_zero import rank_zero_only
from torchvision.utils import make_grid

from lightning_modules.command_line.console import progress_bar
from lightning_modules.run.csv_files import MetricsCSV

IMAGES = 64  # of a grid
BAR = "{desc}: {percentage:3.0f}% |{bar:20}| step {n_fmt} of {total_fmt}{postfix}, {rate_noinv_fmt}, {remaining} left"
LINE = "step {n_fmt} of {total_fmt}{postfix}, {rate_noinv_fmt}, {remaining} left"  # without a terminal


class TrainingClock(pl.Callback):
    """Seconds spent in training steps, over all interruptions; validation and measurements do not count."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._started = 0.0

    def state_dict(self) -> dict[str, Any]:
        """The time so far."""
        return {"seconds": self.seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from that time."""
        self.seconds = state_dict["seconds"]

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Tell metrics.csv where to ask for the time."""
        for logger in trainer.loggers:
            if isinstance(logger, MetricsCSV):
                logger.seconds = lambda: self.seconds

    def on_train_batch_start(self, trainer: pl.Trainer, *args: Any) -> None:
        """Start the clock."""
        self._started = time.perf_counter()

    def on_train_batch_end(self, trainer: pl.Trainer, *args: Any) -> None:
        """Stop the clock."""
        self.seconds += time.perf_counter() - self._started


class RunProgressBar(TQDMProgressBar):
    """Lightning's bar, over all steps of a run instead of those of an epoch; lines where there is no terminal.

    Speed and time left are those of the steps after the first one, which may compile.
    """

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        super().__init__(refresh_rate=int(self._is_terminal))  # 0: no bars but that of training

    def init_train_tqdm(self) -> Tqdm:
        """The bar, or its lines."""
        steps = self.trainer.max_steps
        return progress_bar(
            "training", steps if steps > 0 else None, " steps", disable=not self.trainer.is_global_zero, smoothing=0,
            bar_format=BAR if self._is_terminal else LINE,
        )  # fmt: skip

    def on_train_start(self, trainer: pl.Trainer, *args: Any) -> None:
        """Note where a continued run starts."""
        super().on_train_start(trainer, *args)
        self._first_step = trainer.global_step + 1

    def on_train_epoch_start(self, trainer: pl.Trainer, *args: Any) -> None:
        """Go on: the bar is that of all epochs."""

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Go on."""

    def on_train_batch_end(self, trainer: pl.Trainer, *args: Any) -> None:
        """Advance; the bar itself knows when to be drawn."""
        bar, step = self.train_progress_bar, trainer.global_step
        if step == self._first_step:
            bar.unpause()  # start the clock
            bar.initial = bar.n = bar.last_print_n = step
        elif step % trainer.log_every_n_steps == 0:  # type: ignore[attr-defined]
            self._show_metrics(trainer)
        bar.update(step - bar.n)

    def init_validation_tqdm(self) -> Tqdm:
        """None during training, where a validation takes seconds."""
        return Tqdm(disable=True) if self.trainer.state.fn == "fit" else super().init_validation_tqdm()

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Close the validation's bar."""
        self.val_progress_bar.close()
        if trainer.state.fn == "fit":
            self._show_metrics(trainer)

    def _show_metrics(self, trainer: pl.Trainer) -> None:
        """Put the newest numbers into the bar, to be drawn when it is."""
        metrics = trainer.progress_bar_metrics.items()
        numbers = {name: f"{value:.2f}" for name, value in metrics if name != "step"}
        self.train_progress_bar.set_postfix(numbers, refresh=False)


class LearningRate(LearningRateMonitor):
    """Lightning's monitor, as train/learning_rate: one curve beside the bound, since all parameters have one rate."""

    def __init__(self) -> None:
        super().__init__(logging_interval="step")

    def _extract_stats(self, trainer: pl.Trainer, interval: str) -> dict[str, float]:
        rates = super()._extract_stats(trainer, interval)
        return {"train/learning_rate": max(rates.values())} if rates else {}


class ImageGrids(pl.Callback):
    """Validation images, their reconstructions and samples of p(x) for TensorBoard, whenever the step has doubled."""

    def __init__(self) -> None:
        self._next_step = 0

    @rank_zero_only
    def on_validation_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Draw at validations only, so that training is not held up in between."""
        if trainer.state.fn != "fit" or trainer.global_step < self._next_step:
            return
        self._next_step = 2 * trainer.global_step
        model, generator = pl_module.model, pl_module.generator("images", 0)
        data = trainer.datamodule  # type: ignore[attr-defined]
        x = torch.from_numpy(data.images("val")[:IMAGES]).to(model.mean)
        reconstruction = model.reconstruct(x, generator=generator)
        sample = model.generate(IMAGES, generator=generator)
        writers = [logger.experiment for logger in trainer.loggers if isinstance(logger, TensorBoardLogger)]
        for name, images in {"data": x, "reconstruction": reconstruction, "sample": sample}.items():
            grid = make_grid(images.view(-1, 1, *data.shape), pad_value=0.5)  # eight beside each other
            for writer in writers:
                writer.add_image(f"val_images/{name}", grid, trainer.global_step)
