"""results/weights/<architecture>/<lr|crn>.safetensors: the best model of each cell of Table 1, described."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from releg.architecture import architecture_name
from releg.weights import load, load_weights, save_model

FOLDER = "weights"


class Cell(NamedTuple):
    """One file: where it is, and the cell of Table 1 that it belongs to."""

    path: Path
    architecture: str
    estimator: str  # lr or crn

    def __str__(self) -> str:
        return f"SBN({self.architecture}) {self.estimator}"


def cell_at(results: Path, architecture: str, estimator: str) -> Cell:
    """The cell's file, whether it exists or not."""
    return Cell(results / FOLDER / architecture / f"{estimator}.safetensors", architecture, estimator)


def published(results: Path) -> Iterator[Cell]:
    """All cells whose weights are there, in the order of their names."""
    for path in sorted((results / FOLDER).glob("*/*.safetensors")):
        yield Cell(path, path.parent.name, path.stem)


def publish(results: Path, entries: Iterable[Mapping[str, Any]]) -> list[Cell]:
    """Keep the best model of each cell, by its validation bound, among finished runs; returns the cells written.

    Args:
        results: the folder that holds runs/ and weights/.
        entries: of the manifest runs.json: folder, estimator, config, result and provenance of each run.
    """
    best: dict[Cell, Mapping[str, Any]] = {}
    for entry in entries:
        cell = cell_at(results, architecture_name(entry["config"]["model.layers"]), entry["estimator"])
        if cell not in best or entry["result"]["val/elbo"] > best[cell]["result"]["val/elbo"]:
            best[cell] = entry
    for cell, entry in best.items():
        cell.path.parent.mkdir(parents=True, exist_ok=True)
        save_model(cell.path, load(results / entry["folder"] / "best.ckpt"), describe(cell, entry))
    return list(best)


def describe(cell: Cell, entry: Mapping[str, Any]) -> dict[str, str]:
    """What the file says of itself: everything that its number in Table 1 depends on."""
    result, provenance = entry["result"], entry["provenance"][-1]
    return {
        "estimator": cell.estimator,
        "test/elbo": repr(result["test/elbo"]),
        "test_samples": str(entry["config"]["model.test_samples"]),
        "val/elbo": repr(result["val/elbo"]),
        "steps": str(result["steps"]),
        "best_step": str(result["best_step"]),
        "seed": str(entry["config"]["seed_everything"]),
        "commit": provenance["commit"],
        "data_sha256": provenance["data_sha256"],
        "settings": json.dumps(entry["config"], sort_keys=True),
    }


def read_description(cell: Cell) -> dict[str, str]:
    """What the file says of itself; ValueError if the file is damaged."""
    return load_weights(cell.path)[1]
