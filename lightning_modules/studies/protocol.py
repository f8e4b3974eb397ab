"""python -m lightning_modules.studies.protocol [--jobs N] [--missing]: four estimators under RODEO's protocol.

SBN(200-200-200), 100,000 steps of protocol/rodeo.yaml with each: a tenth of what the paper trains. Writes
results/protocol/curves.json, results/protocol.md and results/protocol.png; the same command continues after an
interruption. --missing keeps the runs that curves.json records, even if their folders are elsewhere.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lightning_modules.grid.plan import GridRun, RunStatus, config_words
from lightning_modules.run.csv_files import read_metrics
from lightning_modules.run.lock import locked
from lightning_modules.run.provenance import read_provenance
from lightning_modules.studies.study import StudyError, failed, make_missing, options_of, recorded
from releg.files import write_json
from releg.records.file_names import METRICS, PROTOCOL_CURVES
from releg.records.runs import commits
from releg.report.protocol import write_protocol

ARCHITECTURE = "200-200-200"
ESTIMATORS = ("leave_one_out", "disarm", "rodeo", "common_random_numbers")
STEPS = 100_000
POINT = 1_000  # training steps; the mean of the bounds that were logged in them is one point of a curve


def protocol_run(estimator: str, results: Path, steps: int = STEPS) -> GridRun:
    """The run with this estimator's config."""
    words = config_words(ARCHITECTURE, f"{estimator}.yaml", "protocol/rodeo.yaml")
    words += ["--trainer.max_steps", str(steps), "--results_dir", str(results)]
    return GridRun(ARCHITECTURE, estimator, 0, tuple(words))


def main(arguments: list[str] | None = None) -> int:
    """Make the runs and the page. Returns 0, or 1 if a run failed."""
    start_of_a_process = time.process_time()  # most of it loads modules
    options = options_of("python -m lightning_modules.studies.protocol", __doc__, arguments)
    folder = (options.results / PROTOCOL_CURVES).parent
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder) as lock:
        path = options.results / PROTOCOL_CURVES
        known = recorded(path, lambda entry: str(entry["estimator"])) if options.missing else {}
        new = [estimator for estimator in ESTIMATORS if estimator not in known]
        try:
            made = make_missing(
                [protocol_run(name, folder) for name in new], "runs", options.jobs, lock, start_of_a_process
            )
        except StudyError as error:
            return failed("protocol_runs", error)
        known |= zip(new, map(_entry, made), strict=True)
        write_json(path, [known[estimator] for estimator in ESTIMATORS], indent=0)
        write_protocol(options.results)
    return 0


def _entry(status: RunStatus) -> dict[str, Any]:
    assert status.result is not None
    return {
        "estimator": status.run.estimator,
        "steps": status.steps,
        "train": curve(read_metrics(status.folder / METRICS)),
        "val/elbo": status.result["val/elbo"],
        "test/multi_sample_bound": status.result["test/multi_sample_bound"],
        "minutes": round(status.result["training_seconds"] / 60, 1),
        "commit": commits(read_provenance(status.folder)),
    }


def curve(rows: Sequence[dict[str, str]]) -> list[tuple[int, float]]:
    """[(step, training bound)]: means over the rows of every POINT steps up to the step."""
    points: dict[int, list[float]] = {}
    for row in rows:
        if row["metric"] == "train/elbo":
            points.setdefault(-(-int(row["step"]) // POINT) * POINT, []).append(float(row["value"]))
    return [(step, round(statistics.fmean(values), 3)) for step, values in sorted(points.items())]


if __name__ == "__main__":
    sys.exit(main())
