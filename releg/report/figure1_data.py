"""figure1.csv: the curves of Figure 1, gathered from the metrics.csv and grad_variance.csv of its runs."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any, NamedTuple

from releg.report.formats import WHOLE, read_csv, read_metrics, read_variances
from releg.report.names import ESTIMATORS
from releg.report.runs import Run, figure1_runs

CSV = "figure1.csv"
NUMBERS = ("seed", "step", "seconds", "layer", "value", "standard_error")
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
    rows = [row for row in read_metrics(run.folder / "metrics.csv") if row["metric"] == "val/elbo"]
    return [_point(run, row, quantity="val_elbo", estimator=run.estimator) for row in rows]


def _variances(run: Run) -> list[Point]:
    rows = [row for row in read_variances(run.folder / "grad_variance.csv") if row["estimator"] in MEASURED]
    return [_point(run, row, quantity=row["kind"], estimator=MEASURED[row["estimator"]]) for row in rows]


def _point(run: Run, row: dict[str, str], **texts: str) -> Point:
    return parse(row | {"trained_with": run.estimator, "seed": str(run.seed)} | texts)


def parse(texts: dict[str, str]) -> Point:
    """A point from its texts."""
    return Point(**{name: _value(name, texts.get(name, "")) for name in Point._fields})


def _value(name: str, text: str) -> Any:
    """A number that does not apply is None."""
    if name not in NUMBERS:
        return text
    return None if not text else int(text) if name in WHOLE else float(text)


def as_csv(points: list[Point]) -> str:
    """The points with a header; None is an empty cell."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Point._fields)
    writer.writerows(["" if value is None else value for value in point] for point in points)
    return text.getvalue()


def from_csv(path: Path) -> list[Point]:
    """The points of a figure1.csv."""
    optional = ("seconds", "layer", "standard_error")
    return [parse(row) for row in read_csv(path, Point._fields, NUMBERS, optional)]
