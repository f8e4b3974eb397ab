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
WHOLE = ("step", "layer", "seed", "num_images", "samples_per_image")  # columns of whole numbers


def csv_text(head: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """A CSV file; None is an empty cell."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([head, *rows])
    return text.getvalue()


def read_metrics(path: Path) -> list[dict[str, str]]:
    """The undamaged rows of a metrics.csv; none if there is no file."""
    return read_csv(path, METRICS_COLUMNS, ("step", "seconds", "value"))


def read_variances(path: Path) -> list[dict[str, str]]:
    """The undamaged rows of a grad_variance.csv; none if there is no file."""
    return read_csv(
        path, VARIANCE_COLUMNS, tuple(name for name in VARIANCE_COLUMNS if name not in ("estimator", "kind"))
    )


def read_csv(path: Path, columns: tuple[str, ...], numbers: tuple[str, ...]) -> list[dict[str, str]]:
    """The rows of a CSV file with these columns, without its header and without damaged rows.

    Args:
        path: the file; it has no quotes.
        columns: all columns, in their order.
        numbers: columns of finite numbers; those in WHOLE hold whole ones.
    """
    if not path.is_file():
        return []
    lines = path.read_bytes().decode(errors="replace").splitlines()
    cells = [line.split(",") for line in lines]
    rows = [dict(zip(columns, each, strict=True)) for each in cells if len(each) == len(columns)]
    return [row for row in rows if all(_is_number(name, row[name]) for name in numbers)]


def _is_number(name: str, text: str) -> bool:
    if name in WHOLE:
        return text.isascii() and text.isdecimal()
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
