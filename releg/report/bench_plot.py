"""bench.png: milliseconds per step against units per layer and against depth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, LogLocator, NullLocator

from releg.records.names import ESTIMATORS
from releg.report.figure import in_style

MARKERS = {"lr": "o", "crn": "s"}
AXES = {"units": "units per layer, depth 2", "depth": "depth, 200 units per layer"}

Row = dict[str, Any]


@in_style
def draw(rows: Sequence[Row]) -> Figure:
    """One panel per study; the bars are quartiles over rounds, the legend shows the fitted exponents."""
    studies = [study for study in AXES if any(row["study"] == study for row in rows)]
    figure = Figure(figsize=(3.4 * len(studies), 3.0), layout="constrained")
    panels = figure.subplots(1, len(studies), sharey=True, squeeze=False)[0]
    for panel, study, letter in zip(panels, studies, "ab", strict=False):
        _fill(panel, study, [row for row in rows if row["study"] == study])
        panel.set_title(f"({letter})", loc="left", fontweight="bold")
    panels[0].set_ylabel("ms per training step")
    return figure


def exponent(rows: Sequence[Row], study: str) -> float:
    """Least-squares exponent a of ms = c * size**a."""
    return float(np.polyfit(np.log([row[study] for row in rows]), np.log([row["ms"][0] for row in rows]), 1)[0])


def _fill(panel: Axes, study: str, rows: Sequence[Row]) -> None:
    for name, marker in MARKERS.items():
        curve = [row for row in rows if row["estimator"] == name]
        middle, low, high = np.array([row["ms"] for row in curve]).T
        power = f", exponent {exponent(curve, study):.2f}" if len(curve) > 1 else ""
        look: dict[str, Any] = {"marker": marker, "markersize": 4, "linewidth": 1.2, "elinewidth": 0.7, "capsize": 1.5}
        look |= {"color": ESTIMATORS[name].colour, "label": ESTIMATORS[name].label + power}
        panel.errorbar([row[study] for row in curve], middle, yerr=[middle - low, high - middle], **look)
    panel.set(xscale="log", yscale="log", xlabel=AXES[study])
    panel.xaxis.set_major_locator(FixedLocator(sorted({row[study] for row in rows})))
    panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter("{x:g}")
    panel.grid(linewidth=0.3, color="0.88")
    panel.legend(frameon=False, loc="upper left")
