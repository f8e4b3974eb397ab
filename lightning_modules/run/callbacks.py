"""Callbacks of a run: its progress, the learning rate, images, and how long it has trained."""

from __future__ import annotations

import io
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import LearningRateMonitor, TQDMProgressBar
from pytorch_lightning.callbacks.progress.tqdm_progress import Tqdm
from pytorch_lightning.loggers import TensorBoardLogger
from torch import Tensor
from torchvision.utils import make_grid

from lightning_modules.binary_images import BinaryImages
from lightning_modules.command_line.console import SECONDS_BETWEEN_LINES, say
from lightning_modules.run.csv_files import csv_loggers
from lightning_modules.run.parent import PROGRESS_VARIABLE, Progress, write_progress
from lightning_modules.sbn_module import SBNModule
from releg.sbn import SigmoidBeliefNet

SECONDS_BETWEEN_REFRESHES = 0.2  # of the bar
SECONDS_BETWEEN_WRITES = 1.0  # of the progress file
IMAGES_PER_ROW = 8  # and per column
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
        for logger in csv_loggers(trainer):
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
        super().__init__()
        self._is_terminal = sys.stderr.isatty()
        self._every = SECONDS_BETWEEN_REFRESHES if self._is_terminal else SECONDS_BETWEEN_LINES
        self._last = 0.0

    def init_train_tqdm(self) -> Tqdm:
        """The bar; without a terminal it is drawn nowhere, and lines are made of what it knows."""
        steps = self.trainer.max_steps
        return Tqdm(
            desc="training", unit="steps", total=steps if steps > 0 else None, disable=self.is_disabled,
            file=sys.stderr if self._is_terminal else io.StringIO(), dynamic_ncols=self._is_terminal,
            bar_format=self.BAR_FORMAT if self._is_terminal else LINE,
        )  # fmt: skip

    def on_train_start(self, trainer: pl.Trainer, *args: Any) -> None:
        """Show where a continued run starts."""
        super().on_train_start(trainer, *args)
        self._first_step = trainer.global_step + 1
        self._last = time.monotonic()

    def on_train_epoch_start(self, trainer: pl.Trainer, *args: Any) -> None:
        """Go on: the bar is that of all epochs."""

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Go on."""

    def on_train_batch_end(self, trainer: pl.Trainer, *args: Any) -> None:
        """Advance, now and then."""
        bar, step = self.train_progress_bar, trainer.global_step
        if bar.disable:
            return
        if step == self._first_step:
            bar.reset()
            bar.initial = bar.n = step
        if time.monotonic() - self._last > self._every or step == trainer.max_steps:
            self._last = time.monotonic()
            bar.n = step
            metrics = trainer.progress_bar_metrics.items()
            bar.set_postfix({name: f"{value:.2f}" for name, value in metrics if name != "step"})
            if not self._is_terminal:
                say(" ".join(str(bar).split()))

    def init_validation_tqdm(self) -> Tqdm:
        """None during training, where a validation takes seconds."""
        is_shown = self._is_terminal and self.trainer.state.fn != "fit"
        return super().init_validation_tqdm() if is_shown else Tqdm(disable=True)

    def init_test_tqdm(self) -> Tqdm:
        """None without a terminal."""
        return super().init_test_tqdm() if self._is_terminal else Tqdm(disable=True)

    def init_predict_tqdm(self) -> Tqdm:
        """None without a terminal."""
        return super().init_predict_tqdm() if self._is_terminal else Tqdm(disable=True)

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        """Close the bar, so that the error message starts on its own line."""
        if self._train_progress_bar is not None:
            self.train_progress_bar.close()


class LearningRate(LearningRateMonitor):
    """Lightning's monitor, as train/learning_rate: one curve beside the bound, since all parameters have one rate."""

    def __init__(self) -> None:
        super().__init__(logging_interval="step")

    def _extract_stats(self, trainer: pl.Trainer, interval: str) -> dict[str, float]:
        rates = super()._extract_stats(trainer, interval)
        return {"train/learning_rate": max(rates.values())} if rates else {}


class ProgressFile(pl.Callback):
    """Tells the process that started the run how far it is, about once a second."""

    def __init__(self) -> None:
        self._path = os.environ.get(PROGRESS_VARIABLE)
        self._last = 0.0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write where a continued run starts."""
        self._write(trainer)

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *args: object) -> None:
        """Write now and then."""
        if self._path and time.monotonic() - self._last > SECONDS_BETWEEN_WRITES:
            self._write(trainer)

    def _write(self, trainer: pl.Trainer) -> None:
        if self._path and trainer.is_global_zero:
            self._last = time.monotonic()
            elbo = trainer.callback_metrics.get("train/elbo")
            write_progress(Path(self._path), Progress(trainer.global_step, None if elbo is None else float(elbo)))


class ImageGrids(pl.Callback):
    """Writes grids of images at the start and end of a run and whenever the step has doubled."""

    def __init__(self) -> None:
        self._next_step = 0

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write at validations only, so that training is not held up in between."""
        due = trainer.global_step >= self._next_step or trainer.global_step >= trainer.max_steps
        if trainer.state.fn != "fit" or trainer.sanity_checking or not due or not trainer.is_global_zero:
            return
        self._next_step = 2 * trainer.global_step
        writers = [logger.experiment for logger in trainer.loggers if isinstance(logger, TensorBoardLogger)]
        data = getattr(trainer, "datamodule", None)
        if not writers or not isinstance(data, BinaryImages) or not isinstance(pl_module, SBNModule):
            return
        count = IMAGES_PER_ROW**2
        x = torch.from_numpy(data.images("val")[:count]).to(pl_module.device, torch.float32)
        for name, images in grids(pl_module.model, x, pl_module.generator("images", 0)).items():
            grid = make_grid(images.view(-1, 1, *data.shape), IMAGES_PER_ROW, pad_value=0.5)
            for writer in writers:
                writer.add_image(f"val_images/{name}", grid, trainer.global_step)


@torch.no_grad()
def grids(model: SigmoidBeliefNet, x: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
    """Three of (N, data_size): the data, p(x | z) for z inferred from it, and p(x | z) for z drawn from the prior."""
    noise = model.draw_noise(x, generator)
    _, drawn = model.ancestral(noise, torch.rand(x.shape, generator=generator, device=x.device))
    return {
        "data": x,
        "reconstruction": model.reconstruct(x, generator=generator),
        "sample": torch.sigmoid(model.generative_logits(drawn)[0]),
    }
