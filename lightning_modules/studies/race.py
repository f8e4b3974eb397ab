"""python -m lightning_modules.studies.race [--jobs N]: every shipped estimator, each at its best of three rates.

SBN(200-200), 10,000 steps on one thread: three peak rates with one seed, of which the validation bound chooses one,
then three other seeds. Then SBN(32-64-128-256), for LR and the eight that ended lowest. Writes race/runs.json and
race.md with its figure to results/mine after each run; the same command continues after an interruption.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from lightning_modules.grid.plan import GridRun, RunStatus, config_words
from lightning_modules.grid.record import entry_of
from lightning_modules.run.csv_files import read_metrics
from lightning_modules.shipped_estimators import read_estimator, shipped_names
from lightning_modules.studies.study import Numbers, Study
from releg.records.file_names import METRICS, RACE
from releg.records.race import CHOOSING_SEED, FURTHER, LR, NETS, RATES, SEEDS, chosen_rate, runs_of, seeds_of
from releg.records.runs import commits
from releg.report.page import machine
from releg.report.race import write_race

STEPS, WARMUP, VALIDATIONS = 10_000, 1_000, 20
# Those that readers ask for first; all of their runs come before those of the others
FIRST = (
    LR,
    "common_random_numbers",
    "disarm",
    "sibling_rodeo",
    "sibling_leave_one_out",
    "sibling_double_control",
    "leave_one_out",
    "arms",
    "rodeo",
    "reinmax",
)


class Racer(NamedTuple):
    """One run."""

    architecture: str
    estimator: str  # its config
    rate: float
    seed: int

    def run(self, folder: Path) -> GridRun:
        """The run of the grid that it is."""
        words = config_words(self.architecture, self.estimator, "schedule/hold_then_linear.yaml")
        words += ["--model.optimizer.init_args.lr", str(self.rate), "--trainer.max_steps", str(STEPS)]
        words += ["--model.lr_scheduler.init_args.warmup_steps", str(WARMUP), "--model.val_samples", "5"]
        words += ["--trainer.val_check_interval", str(STEPS // VALIDATIONS)]
        words += ["--seed_everything", str(self.seed), "--results_dir", str(folder)]
        return GridRun(self.architecture, f"{self.estimator}, {self.rate}", self.seed, tuple(words))


def planned(recorded: Sequence[Numbers]) -> Iterator[Racer]:
    """The runs as far as they are known: up to the first stage that is not recorded, on which the next one depends."""
    done = {tuple(run[name] for name in Racer._fields) for run in recorded}
    others = [name for name in shipped_names() if name not in FIRST]
    for net, group in ((NETS[0], list(FIRST)), (NETS[0], others), (NETS[1], [])):
        names = group or lowest(recorded)
        trials = [Racer(net, name, rate, CHOOSING_SEED) for rate in RATES for name in names]
        yield from trials
        if not done.issuperset(trials):
            return
        rates = {name: chosen_rate(runs_of(recorded, net, name)) for name in names}
        runs = [Racer(net, name, rate, seed) for seed in SEEDS for name, rate in rates.items() if rate is not None]
        yield from runs
        if not done.issuperset(runs):
            return


def lowest(recorded: Sequence[Numbers]) -> list[str]:
    """LR, and the estimators that ended lowest on the first net, by the mean of their validation bounds."""
    ends = {name: seeds_of(runs_of(recorded, NETS[0], name)) for name in shipped_names() if name != LR}
    order = sorted(ends, key=lambda name: statistics.fmean(run["val/elbo"] for run in ends[name]), reverse=True)
    return [LR, *order[:FURTHER]]


def numbers(status: RunStatus) -> Numbers:
    """What the page needs of a run."""
    entry, name = entry_of(status), status.run.estimator.partition(",")[0]
    estimator = read_estimator(name)
    rows = [row for row in read_metrics(status.folder / METRICS) if row["metric"] == "val/elbo"]
    return {
        "label": estimator.label,
        "unbiased": estimator.unbiased,
        "objective": estimator.objective,
        "steps": entry.steps,
        "samples": entry.config["model.test_samples"],
        "curve": [[int(row["step"]), round(float(row["seconds"]), 2), round(float(row["value"]), 3)] for row in rows],
        **{name: entry.result[name] for name in ("val/elbo", "test/elbo", "test/multi_sample_bound")},
        "commit": commits(entry.provenance),
        "machine": "; ".join(dict.fromkeys(map(machine, entry.provenance))),
    }


STUDY = Study(__doc__, RACE, Racer._fields, planned, numbers, write_race, threads=1)

if __name__ == "__main__":
    sys.exit(STUDY.main())
