"""weights/<architecture>/<lr|crn>.safetensors: the best model of each cell of Table 1, and how it was made.

Those of the published table are in results/, those of a longer budget in its own folder, such as results/converged/.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from lightning_modules.grid.manifest import cell_of, is_here
from lightning_modules.run.checkpoints import BEST, load_run_checkpoint
from releg.records.file_names import WEIGHTS
from releg.records.names import LONGEST_BUDGETS, longer_folders
from releg.records.runs import commits
from releg.weights import load, load_weights, save_model

NEEDED = (
    *("architecture", "estimator", "test/elbo", "test_samples", "val/elbo", "steps", "best_step", "seed", "commit"),
    *("data_sha256", "settings"),
)


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
    for folder in (results, *longer_folders(results)):
        for path in sorted((folder / WEIGHTS).glob("*/*.safetensors")):
            yield Cell(path, path.parent.name, path.stem)


def publish(results: Path, entries: Iterable[Mapping[str, Any]]) -> list[Cell]:
    """Keep the best model of each cell, by its validation bound, among finished runs; returns the cells written.

    Args:
        results: the folder of the budget, which holds weights/.
        entries: of the manifest runs.json: folder, estimator, config, result and provenance of each run. Of those
            whose folders are not here, only one that is published already can be the best.
    """
    best: dict[Cell, Mapping[str, Any]] = {}
    present: dict[Cell, dict[str, str]] = {}
    for entry in entries:
        cell = cell_at(results, *cell_of(entry))
        if cell not in present:
            present[cell] = _present_description(cell)
        if not is_here(results, entry) and not is_of(entry, cell, present[cell]):
            continue
        if cell not in best or entry["result"]["val/elbo"] > best[cell]["result"]["val/elbo"]:
            best[cell] = entry
    written = []
    for cell, entry in best.items():
        if is_of(entry, cell, present[cell]):
            continue
        checkpoint = results / entry["folder"] / BEST
        load_run_checkpoint(checkpoint)  # ValueError if it does not fit its digest
        cell.path.parent.mkdir(parents=True, exist_ok=True)
        save_model(cell.path, load(checkpoint), describe(cell, entry))
        written.append(cell)
    return written


def _present_description(cell: Cell) -> dict[str, str]:
    """What the present file says of itself; nothing if there is none, or it is damaged: a run can replace it."""
    try:
        return read_description(cell) if cell.path.is_file() else {}
    except ValueError as error:
        print(f"reproduce.sh: {error}", file=sys.stderr)
        return {}


def is_of(entry: Mapping[str, Any], cell: Cell, says: Mapping[str, str]) -> bool:
    """Whether a file of this cell that says this of itself is of that run."""
    return describe(cell, entry).items() <= says.items()


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
        "commit": commits(provenance),  # of every process that trained it
        "data_sha256": provenance[-1]["data_sha256"] if provenance else "unknown",
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
