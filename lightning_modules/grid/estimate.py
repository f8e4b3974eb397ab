"""How long the grid will take: predicted from the first steps of each kind of run, corrected as runs go on."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from lightning_modules.binary_images import BinaryImages
from lightning_modules.compiled_step import is_worth_compiling
from lightning_modules.gradient_variance import GradientVariance
from lightning_modules.run.settings import build
from lightning_modules.sbn_module import SBNModule
from lightning_modules.training_step import TrainingStep
from releg import bounds
from releg.estimators.common_random_numbers import CommonRandomNumbers
from releg.measure.variance import measure

TRIAL_IMAGES, TRIAL_SAMPLES = 2, 50  # of the gradient variance


@dataclass(frozen=True)
class Cost:
    """Predicted seconds of one run."""

    start: float
    step: float
    rest: float  # validation, test and measurements, spread over the steps
    steps: int
    sample: float = 0.0  # of a measurement of the variance

    def left(self, done: int) -> float:
        """Seconds left after `done` steps, without the start of a process."""
        return (self.steps - done) * (self.step + self.rest / self.steps)

    def total(self, done: int = 0) -> float:
        """Seconds of a process that continues after `done` steps, its start included."""
        return self.start + self.left(done)


def estimate(config: dict[str, Any], data: BinaryImages, start: float, compiles: bool = True) -> Cost:
    """Predict by timing the first steps of a run, a validation batch and a measurement; their results are discarded.

    Eager steps can take half as long again as compiled ones. A run finds what is compiled for it here in torch's cache.

    Args:
        config: of the run.
        data: to train on; the config's own is not read again.
        start: seconds that a process takes before it trains.
        compiles: whether to compile the steps, if the run will do so.
    """
    trainer = config["trainer"]
    module, _ = build(config)
    device = pl.Trainer(
        accelerator=trainer["accelerator"], devices=1, logger=False, enable_checkpointing=False
    ).strategy.root_device
    module.start_from(data.mean)
    module.to(device)
    steps = trainer["max_steps"]
    if compiles and is_worth_compiling(module.compile_setting, device, steps):
        module.compile_step()
    step = _seconds_per_step(module, data, device, min(60, max(6, steps // 100)))
    sample = _seconds_per_sample(module, next(iter(data.val_dataloader())).to(device))
    validations = max(1, steps // trainer["val_check_interval"])
    drawn = data.counts.val * validations * module.val_samples + data.counts.test * module.test_samples
    samples = sum(_samples(callback) for callback in trainer.get("callbacks") or [])
    measured = _seconds_per_measured_sample(module, data, device) if samples else 0.0
    return Cost(start, step, sample * drawn + samples * measured, steps, measured)


def _seconds_per_step(module: SBNModule, data: BinaryImages, device: torch.device, steps: int) -> float:
    step, batches = TrainingStep(module, seed=0), iter(data.train_dataloader())

    def train(count: int) -> None:
        for _ in range(count):
            step(next(batches).to(device))
        module.model.prior_logits.sum().item()  # waits for the device

    train(2 * steps // 3)  # the first may compile, and the next ones are slower than most
    # the median, since one of the others may still wait for something that compiles
    return statistics.median(_seconds(lambda: train(1)) for _ in range(steps // 3))


def _seconds_per_sample(module: SBNModule, x: Tensor) -> float:
    generator = torch.Generator(x.device).manual_seed(0)
    return _seconds(lambda: bounds.log_weights(module.model, x, 1, generator).sum().item()) / len(x)


def _seconds_per_measured_sample(module: SBNModule, data: BinaryImages, device: torch.device) -> float:
    images = torch.from_numpy(data.images("train")[:TRIAL_IMAGES]).to(device)
    estimators = {"own": module.estimator}
    if not isinstance(module.estimator, CommonRandomNumbers):
        estimators["crn"] = CommonRandomNumbers()

    def trial() -> None:
        measure(estimators, module.model, images, TRIAL_SAMPLES)

    trial()  # may compile, some loops only for as many paths as this
    return _seconds(trial) / (TRIAL_IMAGES * TRIAL_SAMPLES)


def _samples(callback: dict[str, Any]) -> int:
    """How many samples of all images a callback measures during a run."""
    if callback["class_path"] != f"{GradientVariance.__module__}.{GradientVariance.__name__}":
        return 0
    settings = callback["init_args"]
    points = len(settings.get("steps") or ()) + 1  # and the end
    return int(points * settings["num_images"] * settings["samples_per_image"])


def _seconds(do: Callable[[], object]) -> float:
    started = time.perf_counter()
    do()
    return time.perf_counter() - started


def left_together(seconds: list[float], jobs: int) -> float:
    """Wall-clock time of several runs, `jobs` at a time."""
    return max(sum(seconds) / jobs, max(seconds, default=0.0))
