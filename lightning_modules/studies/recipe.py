"""python -m lightning_modules.studies.recipe [--jobs N]: trials of the learning rate, its shape and its warm-up.

RMSprop and batches of 100, as in the paper. All four nets with several peak rates, as many for LR as for CRN; then
other shapes and other warm-ups on one net each, and training bits that are drawn once. Only validation bounds count.
Writes recipe/trials.json and recipe.md; the same command continues after an interruption.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

from lightning_modules.grid.options import ARCHITECTURE_OVERLAYS, ESTIMATOR_OVERLAYS
from lightning_modules.grid.plan import GridRun, RunStatus, config_words
from lightning_modules.grid.record import entry_of
from lightning_modules.studies.study import Numbers, Study
from releg.records.file_names import TRIALS
from releg.records.names import CONSTANT_RATE, SCHEDULES
from releg.records.runs import commits
from releg.report.recipe import write_recipe

RATES = (0.003, 0.005, 0.007, 0.01)
STEPS, WARMUP, SHAPE = 40_000, 4_000, "hold_then_linear"
OTHER_SHAPES = tuple(name for name in SCHEDULES if name != SHAPE)
SHAPES_ON, OTHER_WARMUPS_ON = "200-200", "200-200-200-200"  # deep nets lose units in the first steps
OTHER_WARMUPS = (0, 8_000)
VALIDATIONS = 20  # of a run


class Trial(NamedTuple):
    """One run."""

    architecture: str
    estimator: str  # lr or crn
    rate: float
    shape: str = SHAPE
    warmup: int = WARMUP
    binarization: str = "dynamic"
    steps: int = STEPS

    def run(self, folder: Path) -> GridRun:
        """The run of the grid that it is."""
        schedule = [] if self.shape == CONSTANT_RATE else [f"schedule/{self.shape}.yaml"]
        words = config_words(self.architecture, ESTIMATOR_OVERLAYS[self.estimator], *schedule)
        words += ["--model.optimizer.init_args.lr", str(self.rate), "--trainer.max_steps", str(self.steps)]
        words += ["--trainer.val_check_interval", str(self.steps // VALIDATIONS), "--model.val_samples", "5"]
        words += ["--data.binarization", self.binarization, "--results_dir", str(folder)]
        if schedule and self.warmup:
            words += ["--model.lr_scheduler.init_args.warmup_steps", str(self.warmup)]
        title = f"{self.estimator}, {self.rate} {self.shape}, warm-up {self.warmup}, {self.binarization} bits"
        return GridRun(self.architecture, title, 0, tuple(words))


def trials() -> Iterator[Trial]:
    """As many for LR as for CRN."""
    for net, estimator, rate in product(ARCHITECTURE_OVERLAYS, ESTIMATOR_OVERLAYS, RATES):
        yield Trial(net, estimator, rate)
    for estimator, rate, shape in product(ESTIMATOR_OVERLAYS, RATES[::2], OTHER_SHAPES):
        yield Trial(SHAPES_ON, estimator, rate, shape, 0 if shape == CONSTANT_RATE else WARMUP)
    for estimator, rate, warmup in product(ESTIMATOR_OVERLAYS, RATES[::2], OTHER_WARMUPS):
        yield Trial(OTHER_WARMUPS_ON, estimator, rate, warmup=warmup)
    for estimator in ESTIMATOR_OVERLAYS:
        yield Trial(SHAPES_ON, estimator, RATES[0], binarization="fixed")


def numbers(status: RunStatus) -> Numbers:
    """What the page needs of a trial."""
    entry = entry_of(status)
    return {
        "val/elbo": entry.result["val/elbo"],
        "best_step": entry.result["best_step"],
        "minutes": round(entry.result["training_seconds"] / 60, 1),
        "commit": commits(entry.provenance),
    }


STUDY = Study(__doc__, TRIALS, Trial._fields, trials, numbers, write_recipe)

if __name__ == "__main__":
    sys.exit(STUDY.main())
