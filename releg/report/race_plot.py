"""race.png: the validation bound of every estimator against minutes of training, a panel each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MultipleLocator, NullLocator

from releg.records.names import ESTIMATORS, label_of
from releg.report.style import in_style

SPAN = 36.0  # nats below the best bound that a panel shows
COLUMNS = 6
WIDTH = 7.2  # inches
ROW_HEIGHT = 1.2
KEY = (
    "Higher is better. Thick: the estimator that a panel names, dashed if biased, dotted if it climbs another bound.\n"
    "Thin: CRN blue, LR orange, all others grey; first seeds. The vertical line is LR's time. Panels in the order of "
    "the table."
)


class Curve(NamedTuple):
    """The bounds of one run."""

    estimator: str
    unbiased: bool
    objective: str
    points: list[tuple[float, float]]  # minutes and elbo


@in_style
def draw(curves: Sequence[Curve], lr_minutes: float) -> Figure:
    """One panel per estimator, in the given order, with the lines of all others behind its own."""
    columns = min(COLUMNS, len(curves))
    rows = -(-len(curves) // columns)
    figure = Figure(figsize=(WIDTH, ROW_HEIGHT * rows + 0.9), layout="constrained")
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flatten()
    best = max(value for curve in curves for _, value in curve.points)
    panels[0].set_xscale("log")
    panels[0].set_ylim(best - SPAN, best + 2)
    panels[0].yaxis.set_major_locator(MultipleLocator(10))
    panels[0].xaxis.set_major_locator(LogLocator(subs=(1, 3)))
    panels[0].xaxis.set_minor_locator(NullLocator())
    panels[0].xaxis.set_major_formatter(FuncFormatter(lambda minutes, _: f"{minutes:g}"))
    for panel, curve in zip(panels, curves, strict=False):
        panel.axvline(lr_minutes, color="0.8", linewidth=0.6, zorder=0)
        for other in curves:
            if other is not curve:
                _line(panel, other, _colour(other, "0.85"), 0.7, 2 if other.estimator in ESTIMATORS else 1)
        _line(panel, curve, _colour(curve, "0.1"), 1.6, 3)
        panel.set_title(label_of(curve.estimator), fontsize=7, pad=2)
        panel.tick_params(labelsize=6.5, length=2)
    for panel in panels[len(curves) :]:
        panel.set_visible(False)
    figure.supxlabel(f"minutes of training\n{KEY}", fontsize=7)
    figure.supylabel("validation elbo (nats per image)", fontsize=8)
    return figure


def _line(panel: Axes, curve: Curve, colour: str, width: float, order: int) -> None:
    style = "--" if not curve.unbiased else "-" if curve.objective == "elbo" else ":"
    panel.plot(*zip(*curve.points, strict=True), color=colour, linewidth=width, linestyle=style, zorder=order)


def _colour(curve: Curve, otherwise: str) -> str:
    return ESTIMATORS[curve.estimator].colour if curve.estimator in ESTIMATORS else otherwise
