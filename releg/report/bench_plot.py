"""bench.png: milliseconds per step against units per layer and against depth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from releg.records.names import ESTIMATORS
from releg.report.figure import in_style

STYLES: dict[str, Any] = {
    "lr": {"color": ESTIMATORS["lr"].colour, "marker": "o", "markerfacecolor": "white"},
    **{name: {"color": ESTIMATORS["crn"].colour, "marker": "s"} for name in ("crn_cpu", "crn_triton")},
    "crn_batched": {"color": ESTIMATORS["crn"].colour, "marker": "^", "linestyle": "--", "markerfacecolor": "white"},
}
AXES = {"units": "units per layer, depth 2", "depth": "depth, 200 units per layer"}

Row = dict[str, Any]


@in_style
def draw(rows: Sequence[Row], exponents: Sequence[Row], labels: Mapping[str, str]) -> Figure:
    """One panel per study; the bars are quartiles over rounds, the legend shows the fitted exponents."""
    studies = [study for study in AXES if any(row["study"] == study for row in rows)]
    figure = Figure(figsize=(3.4 * len(studies), 3.0), layout="constrained")
    panels = figure.subplots(1, len(studies), sharey=True, squeeze=False)[0]
    for panel, study, letter in zip(panels, studies, "ab", strict=False):
        # reversed, so that the first of several fits wins: the one over all sizes
        slopes = {row["estimator"]: row["exponent"] for row in reversed(exponents) if row["study"] == study}
        for name in dict.fromkeys(row["estimator"] for row in rows):
            mine = [row for row in rows if (row["study"], row["estimator"]) == (study, name)]
            power = f", exponent {slopes[name]:.2f}" if name in slopes else ""
            _curve(panel, study, mine, labels[name] + power)
        panel.set_title(f"({letter})", loc="left", fontsize=8, fontweight="bold")
        _finish(panel, study, sorted({row[study] for row in rows if row["study"] == study}))
    panels[0].set_ylabel("ms per training step")
    return figure


def _curve(panel: Axes, study: str, rows: Sequence[Row], label: str) -> None:
    times = [row["ms_per_step"] for row in rows]
    below = [max(0.0, row["ms_per_step"] - row["ms_quartiles"][0]) for row in rows]
    above = [max(0.0, row["ms_quartiles"][1] - row["ms_per_step"]) for row in rows]
    panel.errorbar(
        [row[study] for row in rows],
        times,
        yerr=[below, above],
        markersize=3.8,
        markeredgewidth=0.8,
        linewidth=1.2,
        elinewidth=0.7,
        capsize=1.5,
        label=label,
        **STYLES[rows[0]["estimator"]],
    )


def _finish(panel: Axes, study: str, sizes: Sequence[int]) -> None:
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_xlabel(AXES[study])
    panel.xaxis.set_major_locator(FixedLocator(list(sizes)))
    panel.xaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_major_formatter(FuncFormatter(_plain))
    panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    panel.yaxis.set_minor_locator(NullLocator())
    panel.yaxis.set_major_formatter(FuncFormatter(_plain))
    panel.grid(True, which="major", linewidth=0.3, color="0.88")
    panel.set_axisbelow(True)
    # above the panel, where no curve can pass
    panel.legend(frameon=False, loc="lower left", bbox_to_anchor=(0.07, 1.0), borderaxespad=0, handlelength=2.5)


def _plain(value: float, _: int | None = None) -> str:
    return f"{value:g}"
