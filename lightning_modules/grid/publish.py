"""python -m lightning_modules.grid.publish BUDGET: put what was trained among the published results, for maintainers.

Takes the finished runs of results/mine/BUDGET, also while others are training there. Their numbers, thinned curves for
TensorBoard, the best model of each cell and Figure 1's measurement go to results/ (budget standard) or results/BUDGET.
Published runs of other cells stay, and so do other seeds of a cell if they have the same settings. `git diff` shows
what changed.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from lightning_modules import OWN_RESULTS, RESULTS
from lightning_modules.grid import weights
from lightning_modules.grid.event_files import write_event_files
from lightning_modules.grid.record import merged, recorded
from lightning_modules.run.lock import locked
from releg.records.file_names import PAPER
from releg.records.names import BUDGETS, ESTIMATORS, LONGEST_BUDGETS, PUBLISHED_BUDGET
from releg.records.runs import Entry, write_runs
from releg.report.curves import measured_run, measurement_file
from releg.report.every_page import write_every_page
from releg.report.page import remove

HAVE_WEIGHTS = (PUBLISHED_BUDGET, *LONGEST_BUDGETS)


def main(arguments: list[str] | None = None) -> int:
    """Publish a budget."""
    parser = argparse.ArgumentParser("python -m lightning_modules.grid.publish", description=__doc__)
    parser.add_argument("budget", choices=BUDGETS)
    budget = parser.parse_args(arguments).budget
    published = RESULTS if budget == PUBLISHED_BUDGET else RESULTS / budget
    with locked(published):
        try:
            publish(OWN_RESULTS / budget, published, budget in HAVE_WEIGHTS)
            write_every_page(RESULTS)  # Table 1 shows the rows of longer budgets, records.md the runs of all
        except (OSError, ValueError) as error:
            parser.error(str(error))
    print(f"written to {published}; python -m releg.report prints the table of the README", file=sys.stderr)
    return 0


def publish(mine: Path, published: Path, with_weights: bool) -> None:
    """Merge the runs of one results folder into another one, and write its tables and figures.

    The runs' own folders stay where they are. Without them, as in a fresh clone, the pages are made from what is kept.
    """
    new = [entry for entry in recorded(mine) if entry.is_here]
    if not new:
        raise ValueError(f"there is no finished run in {mine}, expected those that bash reproduce.sh trains; run it")
    before = recorded(published)
    entries = merged(before, new)
    if not (published / PAPER).is_file():
        shutil.copy(mine / PAPER, published)
    write_runs(published, entries, {})
    write_event_files(published, entries)
    _copy_measurements(mine, published, entries)
    if with_weights:
        weights.publish(published, entries)
    write_every_page(published)
    stay = {(entry.cell, entry.seed) for entry in entries}
    for entry in before:
        if (entry.cell, entry.seed) not in stay:
            print(f"SBN({entry.net}) {entry.estimator} seed {entry.seed} had other settings: removed", file=sys.stderr)


def _copy_measurements(mine: Path, published: Path, entries: list[Entry]) -> None:
    """Publish what was measured at the end of these runs; delete what belongs to runs that have left."""
    trained = {entry.trained for entry in entries}
    for name in ESTIMATORS:
        source, target = (measurement_file(folder, name) for folder in (mine, published))
        if measured_run(source) in trained:
            target.parent.mkdir(exist_ok=True)
            for suffix in (".csv", ".json"):
                shutil.copy(source.with_suffix(suffix), target.with_suffix(suffix))
        elif measured_run(target) not in trained:
            remove(target, target.with_suffix(".json"))


if __name__ == "__main__":
    sys.exit(main())
