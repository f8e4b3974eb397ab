"""python -m lightning_modules.grid.publish BUDGET: put what was trained among the published results, for maintainers.

Takes the finished runs of results/mine/BUDGET. Their numbers, thinned curves for TensorBoard, the best model of each
cell and Figure 1's measurement go to results/ (budget standard) or results/BUDGET; published runs of other cells and
seeds stay. The runs are copied to that folder's runs/, which git ignores: tables and figures are made from there.
`git diff` shows what changed.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from dataclasses import replace
from pathlib import Path

from lightning_modules import OWN_RESULTS, RESULTS
from lightning_modules.grid import weights
from lightning_modules.grid.event_files import write_event_files
from lightning_modules.grid.record import merged, recorded
from lightning_modules.run.lock import locked
from releg.records.file_names import MEASUREMENTS, PAPER
from releg.records.names import BUDGETS, LONGEST_BUDGETS, PUBLISHED_BUDGET
from releg.records.runs import write_runs
from releg.report.every_page import write_every_page

NOT_COPIED = shutil.ignore_patterns("last.ckpt", "previous.ckpt", "events.out.tfevents.*", "*.txt", ".*")
HAVE_WEIGHTS = (PUBLISHED_BUDGET, *LONGEST_BUDGETS)


def main(arguments: list[str] | None = None) -> int:
    """Publish a budget."""
    parser = argparse.ArgumentParser("python -m lightning_modules.grid.publish", description=__doc__)
    parser.add_argument("budget", choices=BUDGETS)
    budget = parser.parse_args(arguments).budget
    published = RESULTS if budget == PUBLISHED_BUDGET else RESULTS / budget
    with locked(OWN_RESULTS / budget), locked(published):
        try:
            publish(OWN_RESULTS / budget, published, budget in HAVE_WEIGHTS)
        except (OSError, ValueError) as error:
            parser.error(str(error))
    print(f"written to {published}", file=sys.stderr)
    return 0


def publish(mine: Path, published: Path, with_weights: bool) -> None:
    """Merge the runs of one results folder into another one, and write its tables and figures."""
    new = [entry for entry in recorded(mine) if entry.is_here]
    if not new:
        raise ValueError(f"there is no finished run in {mine}, expected those that bash reproduce.sh trains; run it")
    moved = [replace(entry, folder=published / entry.folder.relative_to(mine)) for entry in new]
    for entry, copy in zip(new, moved, strict=True):
        shutil.copytree(entry.folder, copy.folder, ignore=NOT_COPIED, dirs_exist_ok=True)
    if (mine / MEASUREMENTS).is_dir():
        shutil.copytree(mine / MEASUREMENTS, published / MEASUREMENTS, dirs_exist_ok=True)
    if not (published / PAPER).is_file():
        shutil.copy(mine / PAPER, published)
    entries = merged(recorded(published), moved)
    write_runs(published, entries, {})
    write_event_files(published, moved)
    if with_weights:
        weights.publish(published, entries)
    write_every_page(published)


if __name__ == "__main__":
    sys.exit(main())
