"""How the cost of a step grows with units per layer and with depth, and the exponents of that growth."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lightning_modules.bench.steps import MOST_UNITS, SCALABLE, available
from lightning_modules.bench.table import Bench, Row
from lightning_modules.command_line.console import say

DEPTH = 2  # of the nets whose units per layer vary
UNITS = 200  # per layer of the nets whose depth varies


def measure_scaling(bench: Bench, units: Sequence[int], depths: Sequence[int]) -> list[Row]:
    """One row per size and estimator, at initial weights."""
    sizes = [("units", size, DEPTH) for size in units] + [("depth", UNITS, depth) for depth in depths]
    rows: list[Row] = []
    for study, size, depth in sizes:
        names = [name for name in available(SCALABLE, bench.device) if size <= MOST_UNITS.get(name, size)]
        problem = bench.problem((size,) * depth)
        say(f"growth with {study}: SBN({problem.architecture})")
        for name, columns in bench.time(names, problem).items():
            rows.append(
                {"study": study, "units": size, "depth": depth, "weights": "initial", "estimator": name, **columns}
            )
    return rows


def exponents(rows: Sequence[Row]) -> list[Row]:
    """For each study and estimator the slopes of log time and of log ratio to LR against log size.

    Over all sizes first; then, of five or more, over the three largest, where fixed costs matter less.
    """
    keys = list(dict.fromkeys((str(row["study"]), str(row["estimator"])) for row in rows))
    by_key = {key: [row for row in rows if (row["study"], row["estimator"]) == key] for key in keys}
    fits = [_fit(study, name, by_key[study, name]) for study, name in keys if len(by_key[study, name]) >= 2]
    large = [_fit(study, name, by_key[study, name][-3:]) for study, name in keys if len(by_key[study, name]) >= 5]
    return [*fits, *large]


def _fit(study: str, name: str, rows: Sequence[Row]) -> Row:
    sizes = [_number(row, study) for row in rows]
    return {
        "study": study,
        "estimator": name,
        "from": min(sizes),
        "to": max(sizes),
        "exponent": slope(sizes, [_number(row, "ms_per_step") for row in rows]),
        "exponent_of_ratio": slope(sizes, [_number(row, "ratio_to_lr") for row in rows]),
    }


def slope(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Least-squares exponent a of values = c * sizes**a."""
    return round(float(np.polyfit(np.log(sizes), np.log(values), 1)[0]), 3)


def _number(row: Row, column: str) -> float:
    value = row[column]
    assert isinstance(value, (int, float))
    return value
