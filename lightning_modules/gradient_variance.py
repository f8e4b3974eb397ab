"""The Figure 1 callback: gradient variance at chosen steps of a run."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from pathlib import Path

import pytorch_lightning as pl
from lightning_fabric.utilities.distributed import _InfiniteBarrier

from lightning_modules.binary_images import BinaryImages
from lightning_modules.command_line.console import progress_bar
from lightning_modules.run.csv_files import read_variances, replace_variances
from lightning_modules.sbn_module import SBNModule
from lightning_modules.shipped_estimators import name_of
from releg.checks import check_at_least
from releg.estimators.base import Estimator
from releg.measure.fitting import have_same_settings, prepare
from releg.measure.moments import GradientVariances
from releg.measure.variance import measure
from releg.records.file_names import VARIANCES


class GradientVariance(pl.Callback):
    """Measures the variance of the gradient w.r.t. the mean of every Bernoulli unit while training.

    At the chosen steps and at the end, from `samples_per_image` samples of each of the first `num_images` training
    images. Per layer, 1 being next to x: within-image, between-image and total variance with standard errors, for
    likelihood ratios the exact within-image variance too (releg/measure/variance.py says how each is defined). They
    are logged as variance/<kind>/layer<k> and kept in grad_variance.csv of the run. Weights, baselines and random
    numbers of the run stay as they are, and its training time does not count the measurements.

    Args:
        estimators: further estimators to measure at the run's weights, by name; logged as
            variance/<name>/<kind>/layer<k>. The run's own is always measured, with its own baselines.
        num_images: training images, the first of the split.
        samples_per_image: estimates per image.
        steps: steps after which to measure; 0 is before the first one.
        baseline_steps: training steps, at the run's weights, for what each of `estimators` owns (baselines).
        seed: of the noise; the same at all steps.
    """

    def __init__(
        self,
        estimators: dict[str, Estimator] | None = None,
        num_images: int = 50_000,
        samples_per_image: int = 1_000,
        steps: list[int] | None = None,
        baseline_steps: int = 2_000,
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_at_least("num_images", num_images, 2, "the default is 50,000")
        check_at_least("samples_per_image", samples_per_image, 2, "the default is 1,000")
        check_at_least("steps", min(steps or [0]), 0, "the default is none")
        check_at_least("baseline_steps", baseline_steps, 0, "the default is 2,000")
        self.estimators = estimators or {}
        self.num_images = num_images
        self.samples_per_image = samples_per_image
        self.steps = frozenset(steps or ())
        self.baseline_steps = baseline_steps
        self.seed = seed
        self._reached: int | None = None  # the last step that was considered

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *args: object) -> None:
        """Measure before the step after a chosen one: its checkpoint is written, and the training clock is stopped."""
        if self._is_due(trainer, trainer.global_step in self.steps):
            self._measure_on_first_rank(trainer, pl_module)

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Measure after the last step and its checkpoint, even if the run was interrupted in between."""
        if self._is_due(trainer, True):
            self._measure_on_first_rank(trainer, pl_module)

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Refuse what could not be measured, before training instead of after it."""
        assert isinstance(pl_module, SBNModule)
        _data(trainer).check_training_count(self.num_images)
        name = name_of(pl_module.estimator)
        other = self.estimators.get(name)
        if other is not None and not have_same_settings(pl_module.estimator, other, pl_module.model):
            raise ValueError(f"estimators has a {name} with other settings than the run's own; rename it")

    def _is_due(self, trainer: pl.Trainer, chosen: bool) -> bool:
        """Once per step; what a run had measured when it was interrupted right there is kept."""
        continued, repeated = self._reached is None, self._reached == trainer.global_step
        self._reached = trainer.global_step
        if not chosen or repeated:
            return False
        # rank 0 may write the file before another rank reads it, so all ranks follow rank 0
        return not (continued and trainer.strategy.broadcast(self._has(trainer)))

    def _has(self, trainer: pl.Trainer) -> bool:
        rows = [row for row in read_variances(_file(trainer)) if row["step"] == str(trainer.global_step)]
        amounts = {(row["num_images"], row["samples_per_image"]) for row in rows}
        return amounts == {(str(self.num_images), str(self.samples_per_image))}

    def _measure_on_first_rank(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        with _InfiniteBarrier():  # the others wait, for hours if need be; training's own collectives would time out
            if trainer.is_global_zero:
                self._measure(trainer, pl_module)

    def _measure(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert isinstance(pl_module, SBNModule)
        small = bool(getattr(trainer, "fast_dev_run", False))  # only to see that it runs
        count, samples, steps = (2, 2, 2) if small else (self.num_images, self.samples_per_image, self.baseline_steps)
        images = _data(trainer).training_images(count)
        device = trainer.strategy.root_device  # at the end of a run Lightning has moved the weights off the device
        model = copy.deepcopy(pl_module.model).to(device)
        own = copy.deepcopy(pl_module.estimator).to(device)
        others = prepare(self.estimators, own, model, images, steps, self.seed)
        estimators = {name_of(own): own, **others}
        with progress_bar(f"gradient variance at step {trainer.global_step}", count, " images", leave=False) as bar:
            results = measure(estimators, model, images[:count], samples, self.seed, bar.update)
        for logger in trainer.loggers:
            logger.log_metrics(metrics_of(results, name_of(own)), step=trainer.global_step)
        if not small:
            replace_variances(_file(trainer), trainer.global_step, results)


def _file(trainer: pl.Trainer) -> Path:
    return Path(trainer.default_root_dir) / VARIANCES


def _data(trainer: pl.Trainer) -> BinaryImages:
    data = getattr(trainer, "datamodule", None)
    if not isinstance(data, BinaryImages):
        raise ValueError(f"the gradient variance got {type(data).__name__}, expected a datamodule of BinaryImages")
    return data


def metrics_of(results: Mapping[str, GradientVariances], own: str) -> dict[str, float]:
    """What is logged; the names of the run's own estimator leave out its name."""
    return {
        f"variance/{'' if name == own else name + '/'}{kind}/layer{layer}": number.value
        for name, result in results.items()
        for layer, numbers in enumerate(result.layers, start=1)
        for kind, number in numbers.items()
        if math.isfinite(number.value)
    }
