"""A results folder with made-up numbers, as reproduce.sh leaves it."""

import csv
import json
import math
import shutil
from pathlib import Path
from typing import Any

from releg.architecture import layers_of
from releg.records.csv_formats import METRICS_COLUMNS, VARIANCE_COLUMNS
from releg.records.file_names import RESULT
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


def entry(architecture: str, estimator: str, seed: int, nll: float, steps: int = 10_000) -> dict[str, Any]:
    known = ESTIMATORS[estimator]
    return {
        "folder": f"runs/nothing-in-this-name/{architecture}{estimator}{seed}",
        "config": {
            "seed_everything": seed,
            "model.layers": layers_of(architecture),
            "model.estimator.class_path": f"releg.estimators.{known.config}.{known.class_name}",
            "model.test_samples": 10,
            "trainer.max_steps": steps,
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
    manifest = {"command": "bash reproduce.sh", "seconds": 600.0, "runs": runs, "missing": missing or {}}
    (folder / "runs.json").write_text(json.dumps(manifest))
    return folder


def write_curves(folder: Path, run: dict[str, Any]) -> None:
    """metrics.csv and grad_variance.csv of SBN(32-64-128-256): smooth, LR slower and noisier than CRN."""
    where = folder / run["folder"]
    where.mkdir(parents=True)
    (where / RESULT).write_text(json.dumps(run["result"]))
    estimator = "lr" if "Likelihood" in run["config"]["model.estimator.class_path"] else "crn"
    seed, steps = run["config"]["seed_everything"], run["config"]["trainer.max_steps"]
    slow = 1.0 if estimator == "crn" else 0.4
    with (where / "metrics.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(METRICS_COLUMNS)
        for step in range(steps // 20, steps + 1, steps // 20):
            value = -100 - seed - 100 * math.exp(-4 * slow * step / steps)
            seconds = step * (0.008 if estimator == "lr" else 0.013)
            writer.writerow([step, f"{seconds:.3f}", "train/elbo", value + 1])
            writer.writerow([step, f"{seconds:.3f}", "val/elbo", value])
    with (where / "grad_variance.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, VARIANCE_COLUMNS)
        table.writeheader()
        for step in (10, 30, 100, 300, 1000, 3000, steps):
            table.writerows(_variances(estimator, step, seed))


def _variances(trained_with: str, step: int, seed: int) -> list[dict[str, Any]]:
    rows = []
    for measured in {"lr": ("lr", "crn"), "crn": ("crn",)}[trained_with]:
        for layer in (1, 2, 3, 4):
            crn = 2.0 / layer * (1 + step / 3000)
            for kind, value in _kinds(measured, crn, 1000.0 * layer * step).items():
                numbers = {"value": value + seed * 0.01 * value, "standard_error": 0.1 * value}
                rows.append(
                    {"step": step, "estimator": ESTIMATORS[measured].config, "layer": layer, "kind": kind}
                    | numbers
                    | {"num_images": 100, "samples_per_image": 1000}
                )
    return rows


def _kinds(measured: str, crn: float, ratio: float) -> dict[str, float]:
    if measured == "crn":
        return {"within": crn, "between": 0.5 * crn, "total": 1.5 * crn}
    return {"within": crn * ratio, "total": crn * ratio * 1.1, "exact_within": crn * ratio * 3}
