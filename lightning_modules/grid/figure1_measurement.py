"""Figure 1's last point: the gradient variance on all training images, at the weights of the first LR run.

It belongs to that run, so other seeds can be trained later without measuring again: variance/lr.csv has the numbers,
variance/lr.json a digest of the run's seed and result.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lightning_modules.grid.manifest import cell_of, is_here
from lightning_modules.grid.options import Options, is_shipped
from lightning_modules.run.checkpoints import BEST
from releg.files import write_json
from releg.records.csv_formats import read_variances
from releg.records.file_names import RUNS
from releg.records.names import FIGURE1_ARCHITECTURE, FIGURE1_IMAGES, FIGURE1_SAMPLES, PUBLISHED_BUDGET
from releg.records.runs import trained
from releg.report.curves import MEASURED_RUN, measurement_file, read_measured

MEASURED_CELL = FIGURE1_ARCHITECTURE, "lr"


def measures_at_the_end(options: Options) -> bool:
    """Whether the command ends with the measurement: if it trains the published table, or this cell of it."""
    return is_shipped(options.budget, PUBLISHED_BUDGET) and options.wants(*MEASURED_CELL)


def measure_variance(results: Path, jobs: int) -> None:
    """Measure, unless it was done for this run.

    From the run's own checkpoint, which has its baselines, so nothing is measured where the run is not. In a process of
    its own, which continues an interrupted measurement.
    """
    entry = measured_entry(json.loads((results / RUNS).read_bytes())["runs"])
    if entry is None or _is_measured(results, entry) or not is_here(results, entry):
        return
    output = measurement_file(results, MEASURED_CELL[1])
    output.parent.mkdir(parents=True, exist_ok=True)
    what = f"SBN({FIGURE1_ARCHITECTURE}) lr seed {entry['config']['seed_everything']}"
    print(f"measuring the gradient variance of {what} on {FIGURE1_IMAGES:,} images", file=sys.stderr, flush=True)
    words = ["--ckpt", str(results / entry["folder"] / BEST), "--output", str(output), "--jobs", str(jobs)]
    words += ["--num-images", str(FIGURE1_IMAGES), "--samples-per-image", str(FIGURE1_SAMPLES)]
    command = [sys.executable, "-m", "lightning_modules.cli", "variance", *words]
    if code := subprocess.run(command, check=False, stdout=sys.stderr).returncode:
        raise ValueError(f"the gradient variance was not measured (exit code {code}); the same command continues it")
    write_json(
        output.with_suffix(".json"),
        {**read_measured(output), MEASURED_RUN: trained(entry["config"], entry["result"])},
    )


def measured_entry(entries: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The run that is measured: LR's with the lowest seed."""
    mine = [entry for entry in entries if cell_of(entry) == MEASURED_CELL]
    return min(mine, key=lambda entry: int(entry["config"]["seed_everything"]), default=None)


def _is_measured(results: Path, entry: Mapping[str, Any]) -> bool:
    output = measurement_file(results, MEASURED_CELL[1])
    images = {row["num_images"] for row in read_variances(output)}
    digest = trained(entry["config"], entry["result"])
    return images == {str(FIGURE1_IMAGES)} and read_measured(output).get(MEASURED_RUN) == digest
