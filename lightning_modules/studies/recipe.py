"""python -m lightning_modules.studies.recipe [--jobs N] [--missing]: trials of the learning rate and warm-up.

First the warm-up, on SBN(200-200-200), whose second layer the first steps can switch off. Then short runs of
SBN(200-200) with every peak rate and shape, for LR and for CRN; longer ones with every peak rate in the best shapes and
with the recipe of the budgets; then each estimator with its best recipe, and both with the best common one, for as long
as the published table. Last come cells of that table without their warm-up, and one on fixed bits. Only validation
bounds are compared. Writes results/recipe/trials.json and results/recipe.md; the same command continues after an
interruption. --missing keeps the trials that trials.json records, even if their folders are elsewhere.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from lightning_modules.grid.options import ESTIMATOR_OVERLAYS
from lightning_modules.grid.plan import GridRun, RunStatus, config_words
from lightning_modules.run.checkpoints import BEST
from lightning_modules.run.load import load_run
from lightning_modules.run.lock import locked
from lightning_modules.run.provenance import read_provenance
from lightning_modules.studies.study import StudyError, failed, make_missing, options_of, recorded
from releg.files import write_json
from releg.measure.units_in_use import units_in_use
from releg.records.file_names import TRIALS
from releg.records.names import BUDGETS, CONSTANT_RATE, EXTENDED_ARCHITECTURE, PUBLISHED_BUDGET, SCHEDULES
from releg.records.runs import commits
from releg.report.recipe import write_recipe

Entry = dict[str, Any]  # of trials.json
Recipe = tuple[float, str]  # peak rate and shape

BUDGET_RECIPE: Recipe = (0.003, "linear")  # of quick, standard and converged
RATES = (0.001, 0.003, 0.01)
SHAPES = tuple(name for name in SCHEDULES if name != CONSTANT_RATE)
SHORT, LONG = 10_000, 50_000
WARMUP_ARCHITECTURE, WARMUPS = "200-200-200", (0, 1000, 5000, 20_000)
WITHOUT_WARMUP = (  # cells of the published table that are trained without a warm-up, too
    *(("200-200", "lr"), ("200-200", "crn"), ("200-200-200", "crn"), ("200-200-200-200", "crn")),
    *(("32-64-128-256", "lr"), ("32-64-128-256", "crn")),
)
PUBLISHED_VALIDATION = 2_000  # steps from one validation to the next in runs of the published table
IMAGES = 2_000  # of the validation split, on which units in use are counted


class Trial(NamedTuple):
    """One run."""

    estimator: str  # lr or crn
    rate: float
    shape: str  # of releg.records.names.SCHEDULES
    steps: int
    binarization: str = "dynamic"
    architecture: str = EXTENDED_ARCHITECTURE
    warmup: int = 0  # steps

    def run(self, results: Path) -> GridRun:
        """The run of the grid that it is."""
        schedules = [] if self.shape == CONSTANT_RATE else [f"schedule/{self.shape}.yaml"]
        words = config_words(self.architecture, ESTIMATOR_OVERLAYS[self.estimator], *schedules)
        words += ["--model.optimizer.init_args.lr", str(self.rate), "--trainer.max_steps", str(self.steps)]
        every = PUBLISHED_VALIDATION if self.steps == BUDGETS[PUBLISHED_BUDGET] else self.steps // 20
        words += ["--trainer.val_check_interval", str(every), "--model.val_samples", "5"]
        words += ["--data.binarization", self.binarization, "--results_dir", str(results)]
        if self.warmup:
            words += ["--model.lr_scheduler.init_args.warmup_steps", str(self.warmup)]
        name = f"{self.estimator}, {self.rate} {self.shape}, {self.binarization} bits, {self.steps:,} steps"
        name += f", warm-up {self.warmup}"
        return GridRun(self.architecture, name, 0, tuple(words))


def best_recipes(entries: Sequence[Entry]) -> dict[str, Recipe]:
    """The best recipe of each estimator that has trials, by validation bound."""
    best: dict[str, Entry] = {}
    for entry in entries:
        name = entry["estimator"]
        if name not in best or entry["val/elbo"] > best[name]["val/elbo"]:
            best[name] = entry
    return {name: (entry["rate"], entry["shape"]) for name, entry in best.items()}


def best_common_recipe(entries: Sequence[Entry]) -> Recipe | None:
    """The recipe with the best mean validation bound over the estimators, if there is one that all have tried."""
    elbos: dict[Recipe, dict[str, float]] = {}
    for entry in entries:
        elbos.setdefault((entry["rate"], entry["shape"]), {})[entry["estimator"]] = entry["val/elbo"]
    estimators = {entry["estimator"] for entry in entries}
    tried_by_all = {recipe: known for recipe, known in elbos.items() if known.keys() == estimators}
    return max(tried_by_all, key=lambda recipe: statistics.fmean(tried_by_all[recipe].values()), default=None)


def tells_of_shapes(entry: Entry) -> bool:
    """Whether it is one of the runs in which only the peak rate, the shape and the length vary."""
    net = entry.get("architecture", EXTENDED_ARCHITECTURE)
    return net == EXTENDED_ARCHITECTURE and not entry.get("warmup") and entry["binarization"] != "fixed"


def warmup_trials() -> Iterator[Trial]:
    """From none to four tenths of the steps."""
    for warmup in WARMUPS:
        yield Trial("crn", *BUDGET_RECIPE, LONG, "dynamic", WARMUP_ARCHITECTURE, warmup)


def short_trials() -> Iterator[Trial]:
    """Every peak rate and shape; and the paper's rate, constant."""
    for estimator in ESTIMATOR_OVERLAYS:
        yield Trial(estimator, 0.001, CONSTANT_RATE, SHORT)
        for rate in RATES:
            yield from (Trial(estimator, rate, shape, SHORT) for shape in SHAPES)


def long_trials(short: Sequence[dict[str, Any]]) -> Iterator[Trial]:
    """Every peak rate in the best shape of either estimator, and the budgets' recipe: with longer runs a lower rate may
    win.
    """
    shapes = dict.fromkeys(shape for _, shape in best_recipes(short).values())
    recipes = dict.fromkeys([*((rate, shape) for shape in shapes for rate in RATES), BUDGET_RECIPE])
    for rate, shape in recipes:
        yield from (Trial(estimator, rate, shape, LONG) for estimator in ESTIMATOR_OVERLAYS)


def full_trials(long: Sequence[dict[str, Any]]) -> Iterator[Trial]:
    """The best recipe of each estimator and the best common one, for as long as the published table.

    The budgets' own recipe is among the trials of without_warmup.
    """
    common = best_common_recipe(long)
    for estimator, recipe in best_recipes(long).items():
        for each in dict.fromkeys([recipe, common]):
            if each not in (BUDGET_RECIPE, None):
                yield Trial(estimator, *each, BUDGETS[PUBLISHED_BUDGET])


def without_warmup() -> Iterator[Trial]:
    """Cells of the published table without its warm-up."""
    for architecture, estimator in WITHOUT_WARMUP:
        yield Trial(estimator, *BUDGET_RECIPE, BUDGETS[PUBLISHED_BUDGET], "dynamic", architecture)


def fixed_bits() -> Iterator[Trial]:
    """A cell of the published table on fixed training bits; the table has it on redrawn ones."""
    steps = BUDGETS[PUBLISHED_BUDGET]
    yield Trial("crn", *BUDGET_RECIPE, steps, "fixed", warmup=steps // 10)


def main(arguments: list[str] | None = None) -> int:
    """Make all trials, stage by stage. Returns 0, or 1 if a run failed."""
    start_of_a_process = time.process_time()  # most of it loads modules
    options = options_of("python -m lightning_modules.studies.recipe", __doc__, arguments)
    folder = (options.results / TRIALS).parent
    folder.mkdir(parents=True, exist_ok=True)
    entries: dict[Trial, dict[str, Any]] = {}  # in the order of the stages

    def with_steps(steps: int) -> list[dict[str, Any]]:
        return [entry for entry in entries.values() if tells_of_shapes(entry) and entry["steps"] == steps]

    stages: list[Callable[[], Iterator[Trial]]] = [
        warmup_trials,
        short_trials,
        lambda: long_trials(with_steps(SHORT)),
        lambda: full_trials(with_steps(LONG)),
        without_warmup,
        fixed_bits,
    ]
    with locked(folder) as lock:
        before = recorded(options.results / TRIALS, lambda entry: Trial(*(entry[name] for name in Trial._fields)))
        known = dict(before) if options.missing else {}
        for stage in stages:
            trials = list(stage())
            new = [trial for trial in trials if trial not in known]
            try:
                made = make_missing(
                    [trial.run(folder) for trial in new], "trials", options.jobs, lock, start_of_a_process
                )
            except StudyError as error:
                return failed("trials", error)
            known |= zip(new, map(_entry, new, made), strict=True)
            entries |= {trial: known[trial] for trial in trials}
            later = {} if stage is stages[-1] else {key: entry for key, entry in before.items() if key not in entries}
            write_json(options.results / TRIALS, list((entries | later).values()))  # an interruption loses no record
            write_recipe(options.results)
    return 0


def _entry(trial: Trial, status: RunStatus) -> dict[str, Any]:
    assert status.result is not None
    best = load_run(status.folder / BEST)
    images = torch.from_numpy(best.data.images("val")[:IMAGES]).float()
    return {
        **trial._asdict(),
        "val/elbo": status.result["val/elbo"],
        "units_in_use": units_in_use(best.module.model, images, torch.Generator().manual_seed(0)),
        "best_step": status.result["best_step"],
        "minutes": round(status.result["training_seconds"] / 60, 1),
        "commit": commits(read_provenance(status.folder)),
    }


if __name__ == "__main__":
    sys.exit(main())
