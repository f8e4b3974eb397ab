"""Figure 1: validation bound and gradient variance of one net during training, and what the paper does not show."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from releg.records.file_names import FIGURE1, FIGURE1_MORE, FIGURE1_PAGE, FIGURE1_VARIANCES
from releg.records.names import ESTIMATORS, FIGURE1_ARCHITECTURE, label_of
from releg.report.curves import Bound, bounds_of
from releg.report.figure import in_style, panels_beside, write_figure
from releg.report.numbers import count, distinct, short_count
from releg.report.page import remove, write_page
from releg.report.settings import settings
from releg.report.variance import (
    Measurement,
    Table,
    at_shared_weights,
    figure1_runs,
    largest,
    measured_variances,
    tables,
)

BOUNDS = """# Figure 1

![validation elbo and gradient variance against training steps](figure1.png)

**Figure 1** of SBN({net}). (a) The elbo on the validation images, higher is better: the mean over seeds ({seeds}); the
band reaches from the lowest seed to the highest. Also as `figure1.pdf`.
"""
VARIANCES = """(b) The variance of the gradient w.r.t. the means of the units of each layer, from {samples} samples for
each of {images} training images; layer 1 is next to x. Both estimators are measured at the weights of one run ({run}).
[variance.md](variance.md) has the numbers.
"""
MORE = """## Beyond the paper

![validation elbo against minutes, variance by layer on more images](figure1_more.png)

(a) The elbo against each run's training clock, which is slower if the machine had other work.
"""
MORE_VARIANCES = """(b) The variance of each layer after {step} steps on {images} images, with standard errors.
"""
LAYER_STYLES: list[tuple[Any, str]] = [("-", "o"), ("--", "s"), ("-.", "^"), (":", "D"), ((0, (6, 1, 1, 1, 1, 1)), "v")]
FIRST_STEPS = 0.05  # of all steps: a bound may be below the picture, or it would take most of the height


def write_figure1(results: Path) -> str:
    """Write figure1.md with its pictures and their numbers; delete old ones if no run of the architecture is there."""
    runs = figure1_runs(results)
    bounds = bounds_of(runs, results / FIGURE1)
    page, more = results / FIGURE1_PAGE, results / FIGURE1_MORE
    if not bounds:
        remove(page, more, results / FIGURE1, results / FIGURE1_VARIANCES, *map(page.with_suffix, (".png", ".pdf")))
        return ""
    points = at_shared_weights(measured_variances(results))
    variances = tables(points)
    for suffix in (".png", ".pdf"):
        write_figure(page.with_suffix(suffix), draw(bounds, variances))
    write_figure(more, draw_more(bounds, variances))
    captions = [BOUNDS.format(net=FIGURE1_ARCHITECTURE, seeds=distinct(sorted({bound.seed for bound in bounds}))), MORE]
    if variances:
        at, first = largest(variances), min(points, key=lambda point: point.num_images)
        run = f"{label_of(first.trained_with)}, seed {first.seed}"
        samples, images = count(first.samples_per_image), count(first.num_images)
        captions.insert(1, VARIANCES.format(samples=samples, images=images, run=run))
        captions.append(MORE_VARIANCES.format(step=count(at.step), images=count(at.images)))
    return write_page(page, *captions, settings(runs))


@in_style
def draw(bounds: Sequence[Bound], variances: dict[Measurement, Table]) -> Figure:
    """The paper's two panels; the right one is left out if no variance was measured."""
    figure, (left, *right) = panels_beside(2 if variances else 1)
    _draw_bounds(left, bounds, against_time=False)
    for panel in right:
        _draw_variances(panel, variances)
    figure.legend(handles=_legend(bounds, variances), loc="outside lower center", ncols=6)
    return figure


@in_style
def draw_more(bounds: Sequence[Bound], variances: dict[Measurement, Table]) -> Figure:
    """The bound against time, and the measurement on most images."""
    figure, (left, *right) = panels_beside(2 if variances else 1)
    _draw_bounds(left, bounds, against_time=True)
    for panel in right:
        _draw_by_layer(panel, variances[largest(variances)])
    figure.legend(handles=_legend(bounds, {}), loc="outside lower center", ncols=2)
    return figure


def _draw_bounds(panel: Axes, bounds: Sequence[Bound], against_time: bool) -> None:
    for estimator, paper in ESTIMATORS.items():
        own = [bound for bound in bounds if bound.estimator == estimator]
        at = [[bound for bound in own if bound.step == step] for step in sorted({bound.step for bound in own})]
        along = [statistics.fmean(bound.seconds / 60 if against_time else bound.step for bound in each) for each in at]
        values = [[bound.value for bound in each] for each in at]
        look = _marker(estimator, "o", len(along))
        panel.plot(along, [statistics.fmean(each) for each in values], color=paper.colour, linewidth=1.2, **look)
        panel.fill_between(along, list(map(min, values)), list(map(max, values)), color=paper.colour, alpha=0.2, lw=0)
    last = max(bound.step for bound in bounds)
    shown = [bound.value for bound in bounds if bound.step >= FIRST_STEPS * last]
    if min(shown) < max(shown):
        panel.set_ylim(bottom=min(shown) - 0.05 * (max(shown) - min(shown)))
    panel.set(xlabel="training steps", ylabel="validation elbo (nats)")
    panel.set_xlim(left=0)
    panel.xaxis.set_major_locator(MaxNLocator(5))
    if against_time:
        panel.set_xlabel("training time (minutes)")
    else:
        panel.xaxis.set_major_formatter(FuncFormatter(short_count))


def _draw_variances(panel: Axes, variances: dict[Measurement, Table]) -> None:
    """The sampled total variance of each layer, from the measurements on as many images as the first has."""
    images = min(measurement.images for measurement in variances)
    course = {at.step: table for at, table in variances.items() if at.images == images}
    for estimator, layer in sorted({(key[0], key[2]) for table in course.values() for key in table}):
        line, marker = _style(layer)
        totals = {step: table.get((estimator, "total", layer)) for step, table in course.items()}
        points = [(step, number.value) for step, number in totals.items() if number and number.value > 0]
        look = {"color": ESTIMATORS[estimator].colour, "linewidth": 1.0, **_marker(estimator, marker, 1)}
        panel.plot(*zip(*points, strict=True), linestyle=line, **look)
    panel.set(xscale="log", xlabel="training steps")
    panel.xaxis.set_major_formatter(FuncFormatter(short_count))
    panel.xaxis.set_minor_locator(NullLocator())
    _log_of_variance(panel)


def _draw_by_layer(panel: Axes, table: Table) -> None:
    for (estimator, kind, layer), number in table.items():
        if kind == "total" and number.value > 0:
            look = _marker(estimator, _style(layer)[1], 1)
            panel.errorbar([layer], [number.value], [number.error], color=ESTIMATORS[estimator].colour, lw=0.8, **look)
    layers = sorted({layer for _, _, layer in table})
    panel.set(xlabel="layer", xticks=layers, xlim=(layers[0] - 0.5, layers[-1] + 0.5))
    _log_of_variance(panel)


def _log_of_variance(panel: Axes) -> None:
    panel.set(yscale="log", ylabel="gradient variance (nats²)")
    panel.yaxis.set_major_locator(LogLocator(numticks=9))
    panel.yaxis.set_minor_locator(NullLocator())


def _style(layer: int) -> tuple[Any, str]:
    return LAYER_STYLES[(layer - 1) % len(LAYER_STYLES)]


def _marker(estimator: str, marker: str, length: int) -> dict[str, Any]:
    """LR has open markers, in front of CRN's filled ones; a long curve has fewer markers than points."""
    return {
        "marker": marker,
        "markersize": 3.2,
        "markeredgewidth": 0.8,
        "markerfacecolor": "white" if estimator == "lr" else ESTIMATORS[estimator].colour,
        "markevery": max(1, length // 8),
        "zorder": 2.2 if estimator == "lr" else 2.1,
    }


def _legend(bounds: Sequence[Bound], variances: dict[Measurement, Table]) -> list[Line2D]:
    handles = [
        Line2D([], [], color=paper.colour, linewidth=1.2, label=paper.label, **_marker(name, "o", 1))
        for name, paper in ESTIMATORS.items()
        if any(bound.estimator == name for bound in bounds)
    ]
    for layer in sorted({layer for table in variances.values() for _, _, layer in table}):
        line, marker = _style(layer)
        look = {"color": "0.3", "linestyle": line, "marker": marker, "markersize": 3.2, "linewidth": 1.0}
        handles.append(Line2D([], [], label=f"layer {layer} (next to x)" if layer == 1 else f"layer {layer}", **look))
    return handles
