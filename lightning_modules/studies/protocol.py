"""python -m lightning_modules.studies.protocol [--jobs N]: four estimators under RODEO's protocol, at its full length.

SBN(200-200-200), 1,000,000 steps of protocol/rodeo.yaml with each, on one thread. Writes protocol/curves.json and a
section of race.md, which shows a run under way as unfinished; the same command continues after an interruption, and
with --publish it publishes what there is.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from lightning_modules.grid.plan import GridRun, RunStatus, config_words
from lightning_modules.run.csv_files import read_metrics
from lightning_modules.run.provenance import read_provenance
from lightning_modules.shipped_estimators import read_estimator
from lightning_modules.studies.study import UNFINISHED, Numbers, Study
from releg.records.file_names import METRICS, PROTOCOL_CURVES
from releg.records.runs import commits
from releg.report.race import write_race

ARCHITECTURE = "200-200-200"
ESTIMATORS = ("common_random_numbers", "disarm", "sibling_rodeo", "sibling_leave_one_out")  # in this order
STEPS = 1_000_000
POINT = 1_000  # training steps; the mean of the bounds that were logged in them is one point of a curve


class Trained(NamedTuple):
    """One estimator's run, with its config."""

    estimator: str
    steps: int = STEPS

    def run(self, folder: Path) -> GridRun:
        """The run that it is."""
        words = config_words(ARCHITECTURE, self.estimator, "protocol/rodeo.yaml")
        words += ["--trainer.max_steps", str(self.steps), "--results_dir", str(folder)]
        return GridRun(ARCHITECTURE, self.estimator, 0, tuple(words))


def numbers(status: RunStatus) -> Numbers:
    """What the page needs of a run; of one under way, the best validation so far and no test bounds."""
    rows = read_metrics(status.folder / METRICS)
    validations = [row for row in rows if row["metric"] == "val/elbo"]
    result = status.result or {}
    return {
        "label": read_estimator(status.run.estimator).label,
        UNFINISHED: status.result is None,
        "train": curve(rows),
        "val/elbo": max(float(row["value"]) for row in validations),
        **{name: result.get(name) for name in ("test/elbo", "test/multi_sample_bound")},
        "minutes": round(float(validations[-1]["seconds"]) / 60, 1),
        "commit": commits(read_provenance(status.folder)),
    }


def curve(rows: Sequence[dict[str, str]]) -> list[tuple[int, float]]:
    """[(step, training bound)]: means over the rows of every POINT steps up to the step."""
    points: dict[int, list[float]] = {}
    for row in rows:
        if row["metric"] == "train/elbo":
            points.setdefault(-(-int(row["step"]) // POINT) * POINT, []).append(float(row["value"]))
    return [(step, round(statistics.fmean(values), 3)) for step, values in sorted(points.items())]


STUDY = Study(
    __doc__,
    PROTOCOL_CURVES,
    Trained._fields,
    lambda _: map(Trained, ESTIMATORS),
    numbers,
    write_race,
    threads=1,
    shows_unfinished=True,
)

if __name__ == "__main__":
    sys.exit(STUDY.main())
