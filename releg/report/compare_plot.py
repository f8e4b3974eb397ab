"""compare.png: variance against the cost of a step, with the Pareto front."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from releg.records.names import label_of
from releg.report.label_placement import Box, Point, annotate, segments
from releg.report.style import in_style
from releg.report.tables import plain

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
                markerfacecolor="none" if kind == "other" else colour,
                label=label,
            )
    panel.set_xlabel("ms per training step (100 images)")
    panel.set_ylabel("variance of the inference gradient, one image")
    panel.set_title(title, fontsize=8, loc="left")
    panel.grid(which="major", linewidth=0.3, alpha=0.6)
    figure.legend(fontsize=6.5, loc="outside lower center", ncols=4, frameon=False)
    _plain_ticks(panel)
    _write_names(panel, rows, edge)  # last: only then are the positions of the points final
    return figure


def _plain_ticks(panel: Axes) -> None:
    """Plain numbers, 1, 2 and 5 of every decade along x."""
    panel.margins(x=0.12, y=0.08)
    panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    panel.xaxis.set_minor_locator(NullLocator())
    panel.yaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_major_formatter(FuncFormatter(lambda ms, _: f"{ms:g}"))
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: plain(value)))


def _write_names(panel: Axes, rows: Sequence[Row], edge: Sequence[Row]) -> None:
    """Every estimator's name, over neither points nor the front."""
    points = [(row["ms_per_step"], row["within"]["value"]) for row in rows]
    figure = panel.figure
    figure.draw_without_rendering()  # type: ignore[union-attr]
    corners: list[Point] = []
    for row in edge:  # a step goes along first, then down
        x, y = panel.transData.transform((row["ms_per_step"], row["within"]["value"]))
        corners += [(x, corners[-1][1]), (x, y)] if corners else [(x, y)]
    bars = [_error_bar(panel, row) for row in rows]
    annotate(panel, [label_of(row["estimator"]) for row in rows], points, [*segments(corners), *bars])


def _error_bar(panel: Axes, row: Row) -> Box:
    value, error = row["within"]["value"], row["within"]["standard_error"]
    lowest = max(value - error, panel.get_ylim()[0])  # the axis is logarithmic
    ends = [panel.transData.transform((row["ms_per_step"], end)) for end in (lowest, value + error)]
    return segments([(float(x), float(y)) for x, y in ends])[0]


def _kind(row: Row) -> str:
    if not row["unbiased"]:
        return "biased"
    return "unbiased" if row["objective"] == "elbo" else "other"
