"""figure1.csv: the curves of Figure 1, gathered from the metrics.csv and grad_variance.csv of its runs."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import NamedTuple

from releg.report.formats import read_csv, read_metrics, read_variances
from releg.report.names import ESTIMATORS
from releg.report.runs import Run, figure1_runs

CSV = "figure1.csv"
MEASURED = {known.config: name for name, known in ESTIMATORS.items()}  # by their names in grad_variance.csv


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
    """All points of the runs of Figure 1."""
    chosen = [run for run in figure1_runs(runs) if run.estimator in ESTIMATORS]
    return [point for run in chosen for point in (*_bounds(run), *_variances(run))]


def _bounds(run: Run) -> list[Point]:
    name = run.estimator
    rows = [row for row in read_metrics(run.folder / "metrics.csv") if row["metric"] == "val/elbo"]
    times = [(int(row["step"]), float(row["seconds"]), float(row["value"])) for row in rows]
    return [Point("val_elbo", name, name, run.seed, step, seconds, None, v, None) for step, seconds, v in times]


def _variances(run: Run) -> list[Point]:
    rows = [row for row in read_variances(run.folder / "grad_variance.csv") if row["estimator"] in MEASURED]
    return [
        Point(
            quantity=row["kind"],
            trained_with=run.estimator,
            estimator=MEASURED[row["estimator"]],
            seed=run.seed,
            step=int(row["step"]),
            seconds=None,
            layer=int(row["layer"]),
            value=float(row["value"]),
            standard_error=float(row["standard_error"]),
        )
        for row in rows
    ]


def as_csv(points: list[Point]) -> str:
    """The points with a header; None is an empty cell."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Point._fields)
    writer.writerows(["" if value is None else value for value in point] for point in points)
    return text.getvalue()


def from_csv(path: Path) -> list[Point]:
    """The points of a figure1.csv."""

    def number(text: str) -> float | None:
        return float(text) if text else None

    optional = ("seconds", "layer", "standard_error")
    return [
        Point(
            quantity=row["quantity"],
            trained_with=row["trained_with"],
            estimator=row["estimator"],
            seed=int(row["seed"]),
            step=int(row["step"]),
            seconds=number(row["seconds"]),
            layer=int(row["layer"]) if row["layer"] else None,
            value=float(row["value"]),
            standard_error=number(row["standard_error"]),
        )
        for row in read_csv(path, Point._fields, ("seed", "step", "value", *optional), optional)
    ]
