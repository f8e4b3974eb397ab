"""python -m lightning_modules.studies.recipe [--jobs N]: trials of the learning rate, its shape and its warm-up.

RMSprop and batches of 100, as in the paper. Each net with four peak rates for either estimator, around the best one of
earlier trials; then other shapes on one net, other warm-ups on another. Only validation bounds count. Writes
recipe/trials.json and recipe.md; the same command continues after an interruption.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

from lightning_modules.grid.plan import GridRun, RunStatus, config_words
from lightning_modules.grid.record import entry_of
from lightning_modules.studies.study import Numbers, Study
from releg.records.file_names import TRIALS
from releg.records.names import ARCHITECTURES, ESTIMATORS
from releg.records.runs import commits
from releg.report.recipe import write_recipe

# The best one of earlier trials on SBN(200-200) first, then those around it
RATES = {"lr": (0.003, 0.005, 0.002, 0.001), "crn": (0.01, 0.005, 0.02, 0.003)}
STEPS, WARMUP, SHAPE = 20_000, 2_000, "hold_then_linear"
OTHER_SHAPES_ON, OTHER_SHAPES = "200-200", ("linear", "cosine")
OTHER_WARMUPS_ON, OTHER_WARMUPS = "200-200-200-200", (0, 500, 8_000)  # deep nets lose units in the first steps
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
        words = config_words(self.architecture, self.estimator, f"schedule/{self.shape}.yaml")
        words += ["--model.optimizer.init_args.lr", str(self.rate), "--trainer.max_steps", str(self.steps)]
        words += ["--trainer.val_check_interval", str(self.steps // VALIDATIONS), "--model.val_samples", "5"]
        words += ["--data.binarization", self.binarization, "--results_dir", str(folder)]
        words += ["--model.lr_scheduler.init_args.warmup_steps", str(self.warmup)]
        title = f"{self.estimator}, {self.rate} {self.shape}, warm-up {self.warmup}, {self.binarization} bits"
        return GridRun(self.architecture, title, 0, tuple(words))


def trials() -> Iterator[Trial]:
    """All trials: as many for LR as for CRN."""
    for place, net, estimator in product(range(4), ARCHITECTURES, ESTIMATORS):
        yield Trial(net, estimator, RATES[estimator][place])
    for shape, estimator in product(OTHER_SHAPES, ESTIMATORS):
        yield Trial(OTHER_SHAPES_ON, estimator, RATES[estimator][0], shape)
    for warmup, estimator in product(OTHER_WARMUPS, ESTIMATORS):
        yield Trial(OTHER_WARMUPS_ON, estimator, RATES[estimator][0], warmup=warmup)


def numbers(status: RunStatus) -> Numbers:
    """What the page needs of a trial."""
    entry = entry_of(status)
    return {
        "val/elbo": entry.result["val/elbo"],
        "best_step": entry.result["best_step"],
        "minutes": round(entry.result["training_seconds"] / 60, 1),
        "commit": commits(entry.provenance),
    }


STUDY = Study(__doc__, TRIALS, Trial._fields, lambda _: trials(), numbers, write_recipe)

if __name__ == "__main__":
    sys.exit(STUDY.main())
