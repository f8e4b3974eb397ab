"""grad_variance.csv: one row per step, estimator, layer (1 is next to x) and kind of variance."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path

from lightning_modules.run.folder import write_atomically
from releg.measure.variance import GradientVariances
from releg.report.figure1_data import VARIANCES as COLUMNS
from releg.report.runs import read_csv


def rows_of(step: int, results: Mapping[str, GradientVariances]) -> list[dict[str, str]]:
    """One row per estimator, layer (1 is next to x) and kind."""
    return [
        {
            "step": str(step),
            "estimator": name,
            "layer": str(layer),
            "kind": kind,
            "value": repr(number.value),
            "standard_error": repr(number.standard_error),
            "num_images": str(result.num_images),
            "samples_per_image": str(result.samples_per_image),
        }
        for name, result in results.items()
        for layer, numbers in enumerate(result.layers, start=1)
        for kind, number in numbers.items()
    ]


def read_rows(file: Path) -> list[dict[str, str]]:
    """All whole rows of a grad_variance.csv; none if there is no file."""
    return read_csv(file, COLUMNS, ("step", "layer", "value", "standard_error"))


def replace_rows(file: Path, step: int, results: Mapping[str, GradientVariances]) -> None:
    """Put a step's rows in place of those it had; the file is whole at any moment."""
    kept = [row for row in read_rows(file) if row["step"] != str(step)]
    rows = sorted([*kept, *rows_of(step, results)], key=lambda row: int(row["step"]))
    write_atomically(file, csv_text(rows))


def csv_text(rows: list[dict[str, str]]) -> str:
    """Rows with their header."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
