"""weights/<architecture>/<lr|crn>.safetensors: the best model of each cell of Table 1, and how it was made.

Those of the published table are in results/, those of a longer budget in its own folder, such as results/converged/.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from lightning_modules.run.checkpoints import BEST, load_run_checkpoint
from releg.architecture import architecture_name
from releg.naming.csv_formats import read_variances
from releg.naming.file_names import WEIGHTS
from releg.naming.names import FIGURE1_ARCHITECTURE, FIGURE1_IMAGES, LONGEST_BUDGETS
from releg.report.figure1_data import variance_file
from releg.report.runs import commit_words
from releg.weights import load, load_weights, save_model

NEEDED = ("architecture", "estimator", "test/elbo", "test_samples", "val/elbo", "steps", "data_sha256")  # by verify


class Cell(NamedTuple):
    """One file: where it is, and the cell of Table 1 that it belongs to."""

    path: Path
    architecture: str
    estimator: str  # lr or crn

    def __str__(self) -> str:
        folder = self.path.parents[2].name  # of the budget
        longer = f", budget {folder}" if folder in LONGEST_BUDGETS else ""
        return f"SBN({self.architecture}) {self.estimator}{longer}"


def cell_at(results: Path, architecture: str, estimator: str) -> Cell:
    """The cell's file, whether it exists or not."""
    return Cell(results / WEIGHTS / architecture / f"{estimator}.safetensors", architecture, estimator)


def published(results: Path) -> Iterator[Cell]:
    """All cells whose weights are there, in the order of their names: the published table's, then longer budgets'."""
    for folder in (results, *(results / budget for budget in LONGEST_BUDGETS)):
        for path in sorted((folder / WEIGHTS).glob("*/*.safetensors")):
            yield Cell(path, path.parent.name, path.stem)


def publish(results: Path, entries: Iterable[Mapping[str, Any]]) -> list[Cell]:
    """Keep the best model of each cell, by its validation bound, among finished runs; returns the cells written.

    Args:
        results: the folder of the budget, which holds weights/.
        entries: of the manifest runs.json: folder, estimator, config, result and provenance of each run. Runs
            whose folders are not here are skipped.
    """
    best: dict[Cell, Mapping[str, Any]] = {}
    for entry in entries:
        cell = cell_at(results, architecture_name(entry["config"]["model.layers"]), entry["estimator"])
        if cell not in best or entry["result"]["val/elbo"] > best[cell]["result"]["val/elbo"]:
            best[cell] = entry
    written = []
    for cell, entry in best.items():
        checkpoint = results / entry["folder"] / BEST
        if not checkpoint.is_file() or (cell.path.is_file() and _describes(cell, entry)):
            continue
        load_run_checkpoint(checkpoint)  # ValueError if it does not fit its digest
        cell.path.parent.mkdir(parents=True, exist_ok=True)
        save_model(cell.path, load(checkpoint), describe(cell, entry))
        if cell.architecture == FIGURE1_ARCHITECTURE:
            for suffix in (".csv", ".json"):  # those of other weights
                variance_file(results, cell.estimator).with_suffix(suffix).unlink(missing_ok=True)
        written.append(cell)
    return written


def _describes(cell: Cell, entry: Mapping[str, Any]) -> bool:
    """Whether the cell's file is that of this run already."""
    return describe(cell, entry).items() <= read_description(cell).items()


def measure_variance(results: Path, entries: Iterable[Mapping[str, Any]], jobs: int) -> None:
    """Measure Figure 1's gradient variances at the published weights of LR, unless all training images were measured.

    From the run's own checkpoint, which has its baselines, so nothing is measured where the run is not. In a process of
    its own, which continues an interrupted measurement.
    """
    cell = cell_at(results, FIGURE1_ARCHITECTURE, "lr")
    output = variance_file(results, cell.estimator)
    measured = {row["num_images"] for row in read_variances(output)}
    checkpoints = [results / entry["folder"] / BEST for entry in entries if _is_published(entry, cell)]
    here = [checkpoint for checkpoint in checkpoints if checkpoint.is_file()]
    if not here or measured == {str(FIGURE1_IMAGES)}:
        return
    print(f"measuring the gradient variance of {cell} on {FIGURE1_IMAGES:,} images", file=sys.stderr, flush=True)
    words = [
        "--ckpt",
        str(here[0]),
        "--num-images",
        str(FIGURE1_IMAGES),
        "--jobs",
        str(jobs),
        "--output",
        str(output),
    ]
    command = [sys.executable, "-m", "lightning_modules.cli", "variance", *words]
    if code := subprocess.run(command, check=False, stdout=sys.stderr).returncode:
        raise ValueError(f"the gradient variance was not measured (exit code {code}); the same command continues it")


def _is_published(entry: Mapping[str, Any], cell: Cell) -> bool:
    """Whether the cell's file is of this run."""
    place = architecture_name(entry["config"]["model.layers"]), entry["estimator"]
    return place == (cell.architecture, cell.estimator) and cell.path.is_file() and _describes(cell, entry)


def describe(cell: Cell, entry: Mapping[str, Any]) -> dict[str, str]:
    """What the file says of itself: everything that its number in Table 1 depends on."""
    result, provenance = entry["result"], entry["provenance"]
    return {
        "estimator": cell.estimator,
        "test/elbo": repr(result["test/elbo"]),
        "test_samples": str(entry["config"]["model.test_samples"]),
        "val/elbo": repr(result["val/elbo"]),
        "steps": str(result["steps"]),
        "best_step": str(result["best_step"]),
        "seed": str(entry["config"]["seed_everything"]),
        "commit": "; ".join(dict.fromkeys(map(commit_words, provenance))),  # of every process that trained it
        "data_sha256": provenance[-1]["data_sha256"],
        "settings": json.dumps(entry["config"], sort_keys=True),
    }


def read_description(cell: Cell) -> dict[str, str]:
    """What the file says of itself; ValueError if the file is damaged, or not one of ours."""
    says = load_weights(cell.path)[1]
    if absent := [name for name in NEEDED if name not in says]:
        raise ValueError(
            f"{cell.path} does not say its {', '.join(absent)}, expected a file that reproduce.sh published; keep "
            "other files in another folder"
        )
    return says
