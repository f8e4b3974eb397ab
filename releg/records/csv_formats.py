"""The CSV files that runs write and reports read: their columns, a writer and readers."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

# Columns of a run's metrics.csv and grad_variance.csv, in their order
METRICS_COLUMNS = ("step", "seconds", "metric", "value")
VARIANCE_COLUMNS = ("step", "estimator", "layer", "kind", "value", "standard_error", "num_images", "samples_per_image")
WORDS = ("metric", "estimator", "kind", "trained_with")  # all other columns hold numbers


def csv_text(head: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """A CSV file; None is an empty cell."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([head, *rows])
    return text.getvalue()


def read_metrics(path: Path) -> list[dict[str, str]]:
    """The undamaged rows of a metrics.csv; none if there is no file."""
    return read_csv(path, METRICS_COLUMNS)


def read_variances(path: Path) -> list[dict[str, str]]:
    """The undamaged rows of a grad_variance.csv; none if there is no file."""
    return read_csv(path, VARIANCE_COLUMNS)


def read_csv(path: Path, columns: tuple[str, ...]) -> list[dict[str, str]]:
    """The rows of a CSV file with these columns and no quotes, without its header and the rows that a crash damaged."""
    if not path.is_file():
        return []
    lines = path.read_bytes().decode(errors="replace").splitlines()
    cells = [line.split(",") for line in lines]
    rows = [dict(zip(columns, row, strict=True)) for row in cells if len(row) == len(columns)]
    return [row for row in rows if all(name in WORDS or _is_finite(text) for name, text in row.items())]


def _is_finite(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
