"""python -m lightning_modules.studies.recipe [--jobs N]: trials of the learning rate and its warm-up.

RMSprop and batches of 100, as in the paper. Each net, with either estimator, at two peak rates and two warm-ups, for as
many steps as the budget `quick` has: the best two rates of earlier, shorter trials on SBN(200-200). Only validation
bounds count. Writes recipe/trials.json and recipe.md; the same command continues after an interruption.
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

RATES = {"lr": (0.003, 0.005), "crn": (0.005, 0.01)}
WARMUPS = (10_000, 2_000)  # deep nets lose units for good in the first steps, the fewer the slower the rate rises
STEPS = {"200-200": 50_000, "200-200-200": 60_000, "200-200-200-200": 80_000, "32-64-128-256": 65_000}
SHAPE = "hold_then_linear"
VALIDATIONS = 20  # of a run


class Trial(NamedTuple):
    """One run."""

    architecture: str
    estimator: str  # lr or crn
    rate: float
    shape: str
    warmup: int
    binarization: str
    steps: int

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
    for place, warmup, net, estimator in product(range(2), WARMUPS, ARCHITECTURES, ESTIMATORS):
        yield Trial(net, estimator, RATES[estimator][place], SHAPE, warmup, "dynamic", STEPS[net])


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
