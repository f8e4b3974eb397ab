"""weights/<architecture>/<lr|crn>.safetensors: the best model of each cell of Table 1, and how it was made.

Those of the published table are in results/, those of a longer budget in its own folder, such as results/converged/.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from lightning_modules.run.checkpoints import BEST, load_run_checkpoint
from releg.records.file_names import WEIGHTS
from releg.records.names import LONGEST_BUDGETS, longer_folders
from releg.records.runs import Entry, commits
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


def publish(results: Path, entries: Iterable[Entry]) -> list[Cell]:
    """Keep the best model of each cell, by its validation bound; returns the cells whose files were written.

    Args:
        results: the folder of the budget, which holds weights/.
        entries: finished runs. Of those whose folders are not here, only one whose model the file has can be the best.
    """
    best: dict[Cell, Entry] = {}
    for entry in entries:
        cell = cell_at(results, *entry.cell)
        so_far = best.get(cell)
        if (entry.is_here or _has(cell, entry)) and (so_far is None or _bound(entry) > _bound(so_far)):
            best[cell] = entry
    written = {cell: entry for cell, entry in best.items() if not _has(cell, entry)}
    for cell, entry in written.items():
        checkpoint = entry.folder / BEST
        load_run_checkpoint(checkpoint)  # ValueError if it does not fit its digest
        cell.path.parent.mkdir(parents=True, exist_ok=True)
        save_model(cell.path, load(checkpoint), describe(cell, entry))
    return list(written)


def _bound(entry: Entry) -> float:
    return float(entry.result["val/elbo"])


def _has(cell: Cell, entry: Entry) -> bool:
    """Whether the cell's file has the model of that run; a damaged file has none."""
    try:
        return cell.path.is_file() and is_of(entry, cell, read_description(cell))
    except ValueError:
        return False


def is_of(entry: Entry, cell: Cell, says: Mapping[str, str]) -> bool:
    """Whether a file of this cell that says this of itself is of that run."""
    return describe(cell, entry).items() <= says.items()


def describe(cell: Cell, entry: Entry) -> dict[str, str]:
    """What the file says of itself: everything that its number in Table 1 depends on."""
    result, provenance = entry.result, entry.provenance
    return {
        "estimator": cell.estimator,
        "test/elbo": repr(result["test/elbo"]),
        "test_samples": str(entry.config["model.test_samples"]),
        "val/elbo": repr(result["val/elbo"]),
        "steps": str(result["steps"]),
        "best_step": str(result["best_step"]),
        "seed": str(entry.seed),
        "commit": commits(provenance),  # of every process that trained it
        "data_sha256": provenance[-1]["data_sha256"] if provenance else "unknown",
        "settings": json.dumps(entry.config, sort_keys=True),
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
