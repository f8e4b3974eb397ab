"""python -m lightning_modules.studies.protocol [--jobs N]: four estimators under RODEO's protocol.

SBN(200-200-200), 100,000 steps of protocol/rodeo.yaml with each: a tenth of what the paper trains. Writes
protocol/curves.json and protocol.md; the same command continues after an interruption.
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
from lightning_modules.shipped_estimators import read_estimator
from lightning_modules.studies.study import Numbers, Study
from releg.records.file_names import METRICS, PROTOCOL_CURVES
from releg.records.runs import commits
from releg.report.protocol import write_protocol

ARCHITECTURE = "200-200-200"
ESTIMATORS = ("leave_one_out", "disarm", "rodeo", "common_random_numbers")
STEPS = 100_000
POINT = 1_000  # training steps; the mean of the bounds that were logged in them is one point of a curve


class Trained(NamedTuple):
    """One estimator's run, with its config."""

    estimator: str

    def run(self, folder: Path) -> GridRun:
        """The run that it is."""
        words = config_words(ARCHITECTURE, f"{self.estimator}.yaml", "protocol/rodeo.yaml")
        words += ["--trainer.max_steps", str(STEPS), "--results_dir", str(folder)]
        return GridRun(ARCHITECTURE, self.estimator, 0, tuple(words))


def planned() -> Iterator[Trained]:
    """The runs of the study: one for each estimator."""
    return map(Trained, ESTIMATORS)


def numbers(status: RunStatus) -> Numbers:
    """What the page needs of a run."""
    entry = entry_of(status)
    return {
        "label": read_estimator(status.run.estimator).label,
        "steps": entry.steps,
        "train": curve(read_metrics(status.folder / METRICS)),
        "val/elbo": entry.result["val/elbo"],
        "test/multi_sample_bound": entry.result["test/multi_sample_bound"],
        "minutes": round(entry.result["training_seconds"] / 60, 1),
        "commit": commits(entry.provenance),
    }


def curve(rows: Sequence[dict[str, str]]) -> list[tuple[int, float]]:
    """[(step, training bound)]: means over the rows of every POINT steps up to the step."""
    points: dict[int, list[float]] = {}
    for row in rows:
        if row["metric"] == "train/elbo":
            points.setdefault(-(-int(row["step"]) // POINT) * POINT, []).append(float(row["value"]))
    return [(step, round(statistics.fmean(values), 3)) for step, values in sorted(points.items())]


STUDY = Study(__doc__, PROTOCOL_CURVES, Trained._fields, planned, numbers, write_protocol)

if __name__ == "__main__":
    sys.exit(STUDY.main())
