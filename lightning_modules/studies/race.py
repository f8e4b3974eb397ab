"""python -m lightning_modules.studies.race [--jobs N]: every shipped estimator, trained alike on SBN(200-200).

One run each, with 10,000 steps of a rate that falls from 0.003 to zero in a straight line. Writes race_runs.json and
race.md with its figure to results/mine; the same command continues after an interruption.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from lightning_modules.grid.plan import GridRun, RunStatus, config_words
from lightning_modules.grid.record import entry_of
from lightning_modules.run.lock import locked
from lightning_modules.shipped_estimators import read_estimator, shipped_names
from lightning_modules.studies.study import make_missing, options_of
from releg.records.file_names import RACE_RUNS
from releg.records.names import ESTIMATORS, RACE_ARCHITECTURE
from releg.records.runs import Entry, read_runs, write_runs
from releg.report.race import write_race

RECIPE = ("--trainer.max_steps", "10000", "--model.optimizer.init_args.lr", "0.003")
PAPERS = {known.config: name for name, known in ESTIMATORS.items()}  # how tables call them


def race_run(config: str, results: Path) -> GridRun:
    """The run of the estimator with this config."""
    words = (*config_words(RACE_ARCHITECTURE, f"{config}.yaml", "schedule/linear.yaml"), *RECIPE)
    name = PAPERS.get(config, config)
    return GridRun(RACE_ARCHITECTURE, name, 0, (*words, "--results_dir", str(results)))


def racer(config: str, status: RunStatus) -> Entry:
    """The entry of a finished run, with what the page must say of the estimator."""
    estimator = read_estimator(config)
    return replace(entry_of(status), label=estimator.label, unbiased=estimator.unbiased, objective=estimator.objective)


def main(arguments: list[str] | None = None) -> int:
    """Make the runs that are not recorded, and the page."""
    options = options_of(__doc__, arguments)
    results = options.results
    results.mkdir(parents=True, exist_ok=True)
    with locked(results) as lock:
        recorded = read_runs(results, RACE_RUNS) if (results / RACE_RUNS).is_file() else []
        done = {entry.estimator for entry in recorded}
        new = [config for config in shipped_names() if PAPERS.get(config, config) not in done]
        finished = make_missing([race_run(config, results) for config in new], options.jobs, lock)
        write_runs(results, [*recorded, *map(racer, new, finished)], {}, RACE_RUNS)
        write_race(results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
