"""compare.png: variance against the cost of a step, with the Pareto front."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from releg.report.style import in_style

Row = dict[str, Any]
UNBIASED, BIASED, OTHER = "#1f4e79", "#b3471d", "#6b6b6b"


def front(rows: Sequence[Row]) -> list[Row]:
    """The Pareto front of the unbiased estimators: none is both cheaper and of lower variance. Cheapest first."""
    fair = sorted(
        (row for row in rows if row["unbiased"] and row["objective"] == "elbo"),
        key=lambda row: (row["ms_per_step"], row["within"]["value"]),
    )
    best: list[Row] = []
    for row in fair:
        if not best or row["within"]["value"] < best[-1]["within"]["value"]:
            best.append(row)
    return best


@in_style
def draw(rows: Sequence[Row], title: str) -> Figure:
    """A log-log plot; the names next to the points do not overlap."""
    figure = Figure(figsize=(6.8, 4.6), layout="constrained")
    panel = figure.subplots()
    panel.set_xscale("log")
    panel.set_yscale("log")
    edge = front(rows)
    panel.step(
        [row["ms_per_step"] for row in edge],
        [row["within"]["value"] for row in edge],
        where="post",
        color=UNBIASED,
        linewidth=1,
        alpha=0.5,
        label="Pareto front of the unbiased",
    )
    for kind, colour, marker, label in (
        ("unbiased", UNBIASED, "o", "unbiased"),
        ("other", OTHER, "^", "unbiased for the multi-sample bound"),
        ("biased", BIASED, "X", "biased"),
    ):
        mine = [row for row in rows if _kind(row) == kind]
        if mine:
            panel.errorbar(
                [row["ms_per_step"] for row in mine],
                [row["within"]["value"] for row in mine],
                yerr=[row["within"]["standard_error"] for row in mine],
                linestyle="none",
                marker=marker,
                color=colour,
                markersize=5,
                label=label,
            )
    panel.set_xlabel("ms per training step (100 images)")
    panel.set_ylabel("variance of the inference gradient, one image")
    panel.set_title(title, fontsize=8, loc="left")
    panel.grid(which="major", linewidth=0.3, alpha=0.6)
    panel.legend(fontsize=6.5, loc="best", frameon=True)
    for axis in (panel.xaxis.set_major_formatter, panel.xaxis.set_minor_formatter):
        axis(FuncFormatter(lambda ms, _: f"{ms:g}"))
    _name(panel, rows)  # last: only then are the positions of the points final
    return figure


def _kind(row: Row) -> str:
    if not row["unbiased"]:
        return "biased"
    return "unbiased" if row["objective"] == "elbo" else "other"


def _name(panel: Axes, rows: Sequence[Row]) -> None:
    """Put each name to the right of its point, moved up or down so that it covers no point and no other name."""
    panel.margins(x=0.25, y=0.12)
    figure = panel.figure
    assert isinstance(figure, Figure)
    figure.draw_without_rendering()  # computes all positions
    points = [panel.transData.transform((row["ms_per_step"], row["within"]["value"])) for row in rows]
    taken = [(x - HALF, x + HALF, y) for x, y in points]
    for row, (x, y) in zip(rows, points, strict=True):
        name = row["estimator"].replace("_", " ")
        start, end = x + GAP, x + GAP + CHARACTER * len(name)
        levels = (y + step * LINE for number in range(len(rows)) for step in (-number, number))
        free = (h for h in levels if not any(_meet(start, end, h, other) for other in taken))
        level = next(free, y)
        taken.append((start, end, level))
        panel.annotate(
            name,
            (row["ms_per_step"], row["within"]["value"]),
            xytext=(GAP * 72 / figure.dpi, (level - y) * 72 / figure.dpi),
            textcoords="offset points",
            fontsize=6.5,
            va="center",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.85},
            arrowprops={"arrowstyle": "-", "linewidth": 0.3, "color": "0.6"} if level != y else None,
        )


def _meet(start: float, end: float, level: float, other: tuple[float, float, float]) -> bool:
    return start < other[1] and other[0] < end and abs(level - other[2]) < LINE


# In pixels of the figure: height of a line, width of a character, half a marker, gap between point and name
LINE, CHARACTER, HALF, GAP = 12.0, 5.2, 4.0, 9.0
