"""Callbacks of a run: the training clock, the progress display, the progress file, and images for TensorBoard."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import TensorBoardLogger
from torch import Tensor
from torchvision.utils import make_grid
from tqdm import tqdm

from lightning_modules.binary_images import BinaryImages
from lightning_modules.command_line.console import SECONDS_BETWEEN_LINES, say
from lightning_modules.run.csv_files import csv_loggers
from lightning_modules.run.parent import PROGRESS_VARIABLE, Progress, write_progress
from lightning_modules.run.signals import Signals
from lightning_modules.run.step_overhead import RunCallback
from lightning_modules.run.tensorboard import IMAGES
from lightning_modules.sbn_module import SBNModule
from releg.sbn import SigmoidBeliefNet

SECONDS_BETWEEN_WRITES = 1.0  # of the progress file
IMAGES_PER_ROW = 8  # and per column


class TrainingClock(RunCallback):
    """Seconds spent in training steps, over all interruptions; validation and measurements do not count.

    Neither does the time while the process is stopped (SIGSTOP, Ctrl-Z): such a step counts as long as the one before
    it. While the machine is suspended, the clock stands still anyway.

    Args:
        signals: which know whether the process was stopped.
    """

    def __init__(self, signals: Signals | None = None) -> None:
        self.seconds = 0.0
        self._signals = signals or Signals()
        self._started = (0, 0.0)  # stops so far, and time
        self._last = 0.0  # seconds of the last step

    def state_dict(self) -> dict[str, Any]:
        """The time so far."""
        return {"seconds": self.seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from that time."""
        self.seconds = state_dict["seconds"]

    def on_train_batch_start(self, trainer: pl.Trainer, *args: Any) -> None:
        """Start the clock."""
        self._started = (self._signals.stops, time.perf_counter())  # in this order: a stop in between is noticed

    def on_train_batch_end(self, trainer: pl.Trainer, *args: Any) -> None:
        """Stop the clock and pass the time to metrics.csv."""
        (stops, began), now = self._started, time.perf_counter()
        if self._signals.stops == stops:
            self._last = now - began
        self.seconds += self._last
        for logger in csv_loggers(trainer):
            logger.seconds = self.seconds


class StepProgress(RunCallback):
    """Shows step, elbo and time left."""

    def __init__(self) -> None:
        self._bar: tqdm[Any] | None = None
        self._first = (0, 0.0)  # step and time at the start of this process
        self._last_line = 0.0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Show the step that the run has reached."""
        self._first = (trainer.global_step, time.monotonic())
        self._last_line = time.monotonic()
        if trainer.is_global_zero and sys.stderr.isatty():
            self._bar = tqdm(total=trainer.max_steps, initial=trainer.global_step, unit="step", dynamic_ncols=True)

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *args: Any) -> None:
        """Advance. The elbo is read from the device only when it is shown."""
        if self._bar is not None:
            self._bar.update(trainer.global_step - self._bar.n)
            if trainer.global_step % 50 == 0:
                self._bar.set_postfix_str(self._elbos(trainer, pl_module), refresh=False)
        elif time.monotonic() - self._last_line > SECONDS_BETWEEN_LINES or trainer.global_step == trainer.max_steps:
            self._last_line = time.monotonic()
            say(f"step {trainer.global_step} of {trainer.max_steps}, {self._elbos(trainer, pl_module)}")

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Close the bar and leave it visible."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        """Close the bar, so that the error message starts on its own line."""
        self.on_train_end(trainer, pl_module)

    def _elbos(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> str:
        parts = []
        if isinstance(pl_module, SBNModule) and pl_module.train_elbo is not None:
            parts.append(f"train/elbo {float(pl_module.train_elbo):.2f}")
        if "val/elbo" in trainer.callback_metrics:
            parts.append(f"val/elbo {float(trainer.callback_metrics['val/elbo']):.2f}")
        if self._bar is None:
            done, since = trainer.global_step - self._first[0], time.monotonic() - self._first[1]
            left = (trainer.max_steps - trainer.global_step) * since / max(1, done)
            parts.append(f"{left / 60:.1f} min left")
        return ", ".join(parts)


class ProgressFile(RunCallback):
    """Tells the process that started the run how far it is, about once a second."""

    def __init__(self) -> None:
        self._path = os.environ.get(PROGRESS_VARIABLE)
        self._last = 0.0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write where a continued run starts."""
        self._write(trainer, None)

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *args: object) -> None:
        """Write now and then. The elbo is read from the device only when it is written."""
        if self._path and time.monotonic() - self._last > SECONDS_BETWEEN_WRITES:
            elbo = pl_module.train_elbo if isinstance(pl_module, SBNModule) else None
            self._write(trainer, None if elbo is None else float(elbo))

    def _write(self, trainer: pl.Trainer, elbo: float | None) -> None:
        if self._path and trainer.is_global_zero:
            self._last = time.monotonic()
            write_progress(Path(self._path), Progress(trainer.global_step, elbo))


class ImageGrids(RunCallback):
    """Writes grids of images at the start and end of a run and whenever the step has doubled."""

    def __init__(self) -> None:
        self._next_step = 0

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write at validations only, so that training is not held up in between."""
        due = trainer.global_step >= self._next_step or trainer.global_step >= trainer.max_steps
        if trainer.state.fn != "fit" or not due or not trainer.is_global_zero:
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
                writer.add_image(f"{IMAGES}/{name}", grid, trainer.global_step)


@torch.no_grad()
def grids(model: SigmoidBeliefNet, x: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
    """Three of (N, data_size): the data, p(x | z) for z inferred from it, and p(x | z) for z drawn from the prior."""
    inferred = model.infer(x, model.draw_noise(x, generator)).z
    noise = model.draw_noise(x, generator)
    _, drawn = model.ancestral(noise, torch.rand(x.shape, generator=generator, device=x.device))
    return {
        "data": x,
        "reconstruction": torch.sigmoid(model.generative_logits(inferred)[0]),
        "sample": torch.sigmoid(model.generative_logits(drawn)[0]),
    }
