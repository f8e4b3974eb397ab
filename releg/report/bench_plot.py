"""bench.png: milliseconds per step against units per layer and against depth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter

# Okabe and Ito's colours, which stay apart for colour-blind readers and in print
STYLES = {"lr": ("#000000", "o", "-"), "crn_cpu": ("#D55E00", "s", "-"), "crn_batched": ("#0072B2", "^", "--")}
AXES = {"units": "units per layer, depth 2", "depth": "depth, 200 units per layer"}

Row = dict[str, Any]


def save_plot(path: Path, rows: Sequence[Row], exponents: Sequence[Row], labels: Mapping[str, str]) -> None:
    """One panel per study, with quartiles over rounds as bars and the fitted exponents in the legend."""
    studies = [study for study in AXES if any(row["study"] == study for row in rows)]
    figure = Figure(figsize=(3.6 * len(studies), 3.1), layout="constrained")
    panels = figure.subplots(1, len(studies), sharey=True, squeeze=False)[0]
    for panel, study in zip(panels, studies, strict=True):
        slopes = {row["estimator"]: row["exponent"] for row in exponents if row["study"] == study}
        for name in dict.fromkeys(row["estimator"] for row in rows):
            mine = [row for row in rows if (row["study"], row["estimator"]) == (study, name)]
            power = f", $\\propto n^{{{slopes[name]:.2f}}}$" if name in slopes else ""
            _curve(panel, study, mine, name, labels[name] + power)
        _finish(panel, study, sorted({row[study] for row in rows if row["study"] == study}))
    panels[0].set_ylabel("ms per training step")
    figure.savefig(path, dpi=300)


def _curve(panel: Axes, study: str, rows: Sequence[Row], name: str, label: str) -> None:
    colour, marker, line = STYLES[name]
    times = [row["ms_per_step"] for row in rows]
    below = [row["ms_per_step"] - row["ms_quartiles"][0] for row in rows]
    above = [row["ms_quartiles"][1] - row["ms_per_step"] for row in rows]
    panel.errorbar(
        [row[study] for row in rows],
        times,
        yerr=[below, above],
        color=colour,
        marker=marker,
        linestyle=line,
        markersize=4.5,
        linewidth=1.3,
        elinewidth=0.9,
        capsize=2,
        label=label,
    )


def _finish(panel: Axes, study: str, sizes: Sequence[int]) -> None:
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_xlabel(AXES[study])
    panel.xaxis.set_major_locator(FixedLocator(list(sizes)))
    panel.xaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_major_formatter(ScalarFormatter())
    panel.yaxis.set_major_formatter(ScalarFormatter())
    panel.grid(True, which="major", color="0.9", linewidth=0.6)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    panel.legend(frameon=False, fontsize=8, loc="upper left")
