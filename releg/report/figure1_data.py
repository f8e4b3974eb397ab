"""figure1.csv: the curves of SBN(32-64-128-256), gathered from its runs' metrics.csv and grad_variance.csv."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import NamedTuple

from releg.report.runs import NAMES, Run, read_csv

ARCHITECTURE = "32-64-128-256"
CSV = "figure1.csv"
# The names under which grad_variance.csv knows the two estimators
MEASURED = {"likelihood_ratio": "lr", "common_random_numbers": "crn"}


# Columns of the runs' files, in their order
METRICS = ("step", "seconds", "metric", "value")
VARIANCES = ("step", "estimator", "layer", "kind", "value", "standard_error", "num_images", "samples_per_image")


class Point(NamedTuple):
    """One number of the figure.

    trained_with is the estimator that made the weights. quantity is val_elbo, or a kind of gradient variance (within,
    between, total, exact_within, optimal_within) of `estimator` in `layer` (1 is next to x) at these weights.
    """

    quantity: str
    trained_with: str
    estimator: str
    seed: int
    step: int
    seconds: float | None  # of training
    layer: int | None
    value: float
    standard_error: float | None


def gather(runs: list[Run]) -> list[Point]:
    """All points of all runs of the architecture."""
    chosen = [run for run in runs if run.architecture == ARCHITECTURE and run.estimator in NAMES]
    return [point for run in chosen for point in (*_bounds(run), *_variances(run))]


def _bounds(run: Run) -> list[Point]:
    rows = read_csv(run.folder / "metrics.csv", METRICS, ("step", "seconds", "value"))
    return [
        Point(
            "val_elbo",
            run.estimator,
            run.estimator,
            run.seed,
            int(row["step"]),
            float(row["seconds"]),
            None,
            float(row["value"]),
            None,
        )
        for row in rows
        if row["metric"] == "val/elbo"
    ]


def _variances(run: Run) -> list[Point]:
    rows = read_csv(run.folder / "grad_variance.csv", VARIANCES, ("step", "layer", "value", "standard_error"))
    return [
        Point(
            row["kind"],
            run.estimator,
            MEASURED[row["estimator"]],
            run.seed,
            int(row["step"]),
            None,
            int(row["layer"]),
            float(row["value"]),
            float(row["standard_error"]),
        )
        for row in rows
        if row["estimator"] in MEASURED
    ]


def as_csv(points: list[Point]) -> str:
    """With a header; what does not apply is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Point._fields)
    writer.writerows(["" if value is None else value for value in point] for point in points)
    return text.getvalue()


def from_csv(path: Path) -> list[Point]:
    """The points of a figure1.csv."""

    def number(text: str) -> float | None:
        return float(text) if text else None

    return [
        Point(
            row["quantity"],
            row["trained_with"],
            row["estimator"],
            int(row["seed"]),
            int(row["step"]),
            number(row["seconds"]),
            int(row["layer"]) if row["layer"] else None,
            float(row["value"]),
            number(row["standard_error"]),
        )
        for row in read_csv(
            path,
            Point._fields,
            ("seed", "step", "seconds", "layer", "value", "standard_error"),
            optional=("seconds", "layer", "standard_error"),
        )
    ]
