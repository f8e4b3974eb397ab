"""A results folder with made-up numbers, as reproduce.sh leaves it."""

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from releg.architecture import layers_of
from releg.records.csv_formats import METRICS_COLUMNS, VARIANCE_COLUMNS, csv_text
from releg.records.file_names import METRICS, RESULT
from releg.records.names import ESTIMATORS
from tests.environment import ROOT

PROVENANCE = {
    "started": "2026-01-02T03:04:05Z",
    "commit": "c0ffee",
    "uncommitted_changes": False,
    "python": "3.11.7",
    "packages": {"torch": "2.15.0", "numba": ""},
    "system": "Linux x86_64",
    "processor": "A CPU",
    "cores": 2,
    "gpus": [],
    "data_sha256": "abcd",
}


def entry(
    architecture: str, estimator: str, seed: int, nll: float, steps: int = 10_000, **config: Any
) -> dict[str, Any]:
    return {
        "folder": f"runs/nothing-in-this-name/{architecture}{estimator}{seed}",
        "estimator": estimator,
        "config": {
            "seed_everything": seed,
            "model.layers": layers_of(architecture),
            "model.test_samples": 10,
            "trainer.max_steps": steps,
            **config,
        },
        "result": {
            "steps": steps,
            "best_step": steps - 500 * seed,
            "training_seconds": 90.0,
            "val/elbo": -nll,
            "test/elbo": -nll,
            "test/multi_sample_bound": -nll + 2,
        },
        "provenance": [PROVENANCE],
    }


def write_results(folder: Path, runs: list[dict[str, Any]], missing: dict[str, str] | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(ROOT / "results" / "paper.json", folder / "paper.json")
    (folder / "runs.json").write_text(json.dumps({"runs": runs, "missing": missing or {}}))
    return folder


def write_curves(results: Path, run: dict[str, Any], end: float, ms_per_step: float, points: int = 20) -> None:
    """Leave a finished run: its bound rises linearly from -160 to `end`."""
    folder, steps = results / run["folder"], run["config"]["trainer.max_steps"]
    folder.mkdir(parents=True)
    (folder / RESULT).write_text(json.dumps(run["result"]))
    rows = []
    for step in range(steps // points, steps + 1, steps // points):
        seconds = f"{step * ms_per_step / 1000:.3f}"
        rows += [(step, seconds, "train/elbo", -1.0), (step, seconds, "val/elbo", -160 + (end + 160) * step / steps)]
    (folder / METRICS).write_text(csv_text(METRICS_COLUMNS, rows))


def write_variances(path: Path, steps: Iterable[int], images: int = 100, scale: float = 1.0) -> None:
    """grad_variance.csv of SBN(32-64-128-256) at the weights of an LR run."""
    rows = []
    for step in steps:
        for layer in (1, 2, 3, 4):
            kinds = {("lr", "within"): 1e3 * step, ("lr", "exact_within"): 3e3 * step, ("lr", "total"): 1.1e3 * step}
            kinds |= {("crn", "within"): 1.0, ("crn", "total"): 1.5}
            for (name, kind), value in kinds.items():
                value *= scale / layer
                rows.append((step, ESTIMATORS[name].config, layer, kind, value, 0.1 * value, images, 1000))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(csv_text(VARIANCE_COLUMNS, rows))
