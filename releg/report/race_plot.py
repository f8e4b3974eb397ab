"""race.png: the validation bound of every estimator against minutes of training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from releg.naming.names import ESTIMATORS, label_of
from releg.report.style import in_style

SPAN = 60.0  # nats below the best bound that the figure shows
LINE = 8.5  # points between two names


class Curve(NamedTuple):
    """The bounds of one run."""

    estimator: str
    unbiased: bool
    objective: str
    points: list[tuple[float, float]]  # minutes and elbo


@in_style
def draw(curves: Sequence[Curve], lr_minutes: float) -> Figure:
    """One line per estimator, its name at its end; the vertical line is LR's time."""
    figure = Figure(figsize=(6.8, 4.8), layout="constrained")
    panel = figure.subplots()
    best = max(value for curve in curves for _, value in curve.points)
    panel.set_xscale("log")
    panel.set_ylim(best - SPAN, best + 2)
    panel.axvline(lr_minutes, color="0.75", linewidth=0.8, zorder=0)
    colours = {curve.estimator: _colour(curve, number) for number, curve in enumerate(curves)}
    for curve in curves:
        known = curve.estimator in ESTIMATORS
        panel.plot(
            *zip(*curve.points, strict=True),
            color=colours[curve.estimator],
            linewidth=2 if known else 0.9,
            linestyle=_style(curve),
            zorder=3 if known else 2,
        )
    panel.set_xlabel("minutes of training")
    panel.set_ylabel("validation elbo (nats per image)")
    panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    panel.xaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_major_formatter(FuncFormatter(lambda minutes, _: f"{minutes:g}"))
    panel.grid(which="major", linewidth=0.3, alpha=0.6)
    panel.set_title(
        "full lines: unbiased; dashed: biased; dotted: another bound; grey: LR's time", fontsize=7, loc="left"
    )
    _write_names(panel, curves, colours)
    return figure


def _colour(curve: Curve, number: int) -> str:
    if curve.estimator in ESTIMATORS:
        return ESTIMATORS[curve.estimator].colour
    dark = [*mpl.color_sequences["tab10"], *mpl.color_sequences["Dark2"]]
    return mpl.colors.to_hex(dark[number % len(dark)])


def _style(curve: Curve) -> str:
    if not curve.unbiased:
        return "--"
    return "-" if curve.objective == "elbo" else ":"


def _write_names(panel: Axes, curves: Sequence[Curve], colours: dict[str, str]) -> None:
    """Names right of the panel, in the order of the lines' ends, each joined to its end by a thin line."""
    figure = panel.figure
    assert isinstance(figure, Figure)
    figure.draw_without_rendering()
    low, high = panel.get_ylim()
    ordered = sorted(curves, key=lambda curve: curve.points[-1][1])
    ends = [max(low, min(high, curve.points[-1][1])) for curve in ordered]
    height = panel.get_window_extent().height * 72 / figure.dpi  # points
    wanted = [(end - low) / (high - low) * height for end in ends]
    for curve, end, level in zip(ordered, ends, spread(wanted, LINE, height), strict=True):
        panel.annotate(
            label_of(curve.estimator),
            (curve.points[-1][0], end),
            xytext=(1.03, level / height),
            textcoords="axes fraction",
            fontsize=6.5,
            va="center",
            color=colours[curve.estimator],
            arrowprops={"arrowstyle": "-", "linewidth": 0.3, "color": "0.6"},
            annotation_clip=False,
        )


def spread(wanted: Sequence[float], gap: float, height: float) -> list[float]:
    """Levels as near to the wanted ones (rising) as a gap between them allows, none above the height if they fit."""
    levels: list[float] = []
    for level in wanted:
        levels.append(level if not levels else max(level, levels[-1] + gap))
    ceiling = height
    for index in range(len(levels) - 1, -1, -1):
        levels[index] = min(levels[index], ceiling)
        ceiling = levels[index] - gap
    return levels
