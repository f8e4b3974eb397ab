"""Figure 1: validation bound and gradient variance of one net during training."""

from __future__ import annotations

import statistics
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from mpl_toolkits.axes_grid1 import make_axes_locatable

from releg.files import write_atomically
from releg.records.file_names import FIGURE1
from releg.records.names import ESTIMATORS, label_of
from releg.report.artefacts import remove
from releg.report.figure1_data import (
    Point,
    all_points,
    amount,
    as_csv,
    at_shared_weights,
    curves_of,
    largest,
    layers_of,
    measurement,
    number,
    run_words,
)
from releg.report.runs import Run, budget_sentence, read_manifest
from releg.report.style import as_bytes, in_style

LAYER_STYLES: list[tuple[Any, str]] = [("-", "o"), ("--", "s"), ("-.", "^"), (":", "D"), ((0, (6, 1, 1, 1, 1, 1)), "v")]


def write_figure1(results: Path) -> list[Path]:
    """Write figure1.csv, .png and .pdf; delete old ones if no run of the architecture has begun.

    The points of runs whose folders are missing, as in a fresh clone, stay as they are in figure1.csv.
    """
    chosen = curves_of(read_manifest(results))
    points = all_points(results)
    paths = [(results / FIGURE1).with_suffix(ending) for ending in (".csv", ".png", ".pdf")]
    if not points:
        remove(*paths)
        return []
    notes = [f"SBN({chosen[0].net}). {budget_sentence(chosen)}", *_unfinished(chosen), *panel_notes(points)]
    figure = draw(points, "\n".join(notes))
    write_atomically(paths[0], as_csv(points))
    write_atomically(paths[1], as_bytes(figure))
    write_atomically(paths[2], as_bytes(figure, "pdf"))
    return paths


def _unfinished(runs: list[Run]) -> list[str]:
    """Which curves end before their runs do."""
    short = [run for run in runs if not run.is_finished]
    words = [f"{label_of(run.estimator)}, seed {run.seed}, after {run.result['steps']:,} steps" for run in short]
    return [f"Not finished: {'; '.join(words)}."] if words else []


FIRST_STEPS = 0.05  # of all steps: the part in which a bound may be below the picture
NOTE_WIDTH = 150  # letters
LINE, PANELS = 0.135, 2.73  # inches: the height of a line of the note, and of everything above it


@in_style
def draw(points: list[Point], note: str) -> Figure:
    """The panels, with a note under them: the middle one is left out if no variance was measured."""
    lines = [part for line in note.splitlines() for part in textwrap.wrap(line, NOTE_WIDTH)]
    height = PANELS + LINE * len(lines)
    figure = Figure(figsize=(7.2, height))
    bounds = [point for point in points if point.quantity == "val_elbo"]
    has_variances = bool(layers_of(points))
    first, *middle, last = panels = figure.subplots(1, 3 if has_variances else 2)
    _draw_bounds(first, bounds, against_time=False)
    for axes in middle:
        _draw_variances(axes, points)
    _draw_bounds(last, bounds, against_time=True)
    for letter, axes in zip("abc", panels, strict=False):
        axes.set_title(f"({letter})", loc="left", fontsize=8, fontweight="bold")
        axes.grid(True, which="major", linewidth=0.3, color="0.88")
        axes.set_axisbelow(True)
    edge, top = 0.045, 0.045 + LINE * len(lines)  # inches: the note's
    place = (0.5, top / height)
    figure.legend(handles=_legend(points), loc="lower center", ncols=6, frameon=False, bbox_to_anchor=place)
    text = "\n".join(lines)
    figure.text(0.5, edge / height, text, ha="center", va="bottom", linespacing=1.4, fontsize=6.5, color="0.35")
    vertical = {"top": 1 - 0.27 / height, "bottom": (top + 0.75) / height}
    figure.subplots_adjust(left=0.075, right=0.985, wspace=0.36, **vertical)
    return figure


def _draw_bounds(axes: Axes, bounds: list[Point], against_time: bool) -> None:
    longest = max((point.seconds or 0.0 for point in bounds), default=0.0)
    unit, name = (3600.0, "h") if longest > 3 * 3600 else (60.0, "min") if longest > 180 else (1.0, "s")
    for estimator, known in ESTIMATORS.items():
        mine, shorter = _by_length([point for point in bounds if point.trained_with == estimator])
        for one in shorter:
            along = [(p.seconds or 0.0) / unit if against_time else p.step for p in one]
            axes.plot(along, [p.value for p in one], color=known.colour, linewidth=0.7)
        steps = sorted({point.step for point in mine})
        at = [[point for point in mine if point.step == step] for step in steps]
        values = [statistics.fmean(point.value for point in here) for here in at]
        x = [statistics.fmean((p.seconds or 0.0) / unit for p in here) for here in at] if against_time else steps
        axes.plot(x, values, color=known.colour, linewidth=1.2, **_marker(estimator, "o", len(steps)))
        if any(len(here) > 1 for here in at):
            low, high = ([choose(p.value for p in here) for here in at] for choose in (min, max))
            axes.fill_between(x, low, high, color=known.colour, alpha=0.2, linewidth=0)
    _leave_out_the_first_steps(axes, bounds)
    axes.set_ylabel("validation bound (nats)")
    axes.set_xlabel(f"training time ({name})" if against_time else "training steps")
    axes.set_xlim(left=0)
    if against_time:
        axes.xaxis.set_major_locator(MaxNLocator(5))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.xaxis.set_major_formatter(FuncFormatter(_short_steps))


def _by_length(bounds: list[Point]) -> tuple[list[Point], list[list[Point]]]:
    """The bounds of the seeds that have come farthest, and those of each other seed: it would bend their mean."""
    seeds = [[point for point in bounds if point.seed == seed] for seed in sorted({point.seed for point in bounds})]
    ends = [max(point.step for point in each) for each in seeds]
    farthest = [point for each, end in zip(seeds, ends, strict=True) if end == max(ends) for point in each]
    return farthest, [each for each, end in zip(seeds, ends, strict=True) if end < max(ends)]


def _leave_out_the_first_steps(axes: Axes, bounds: list[Point]) -> None:
    """Let the curves come into view after FIRST_STEPS of the steps: their beginning would take most of the height."""
    last = max((point.step for point in bounds), default=0)
    values = [point.value for point in bounds if point.step >= FIRST_STEPS * last]
    if values and min(values) < max(values):
        axes.set_ylim(bottom=min(values) - 0.05 * (max(values) - min(values)))


def _short_steps(value: float, _: int | None = None) -> str:
    for size, sign in ((1_000_000, "M"), (1_000, "k")):
        if value >= size:
            return f"{value / size:g}{sign}"
    return f"{value:g}"


def panel_notes(points: list[Point]) -> list[str]:
    """What the panels show, and what they lack."""
    trained = {point.trained_with for point in points if point.quantity == "val_elbo"}
    absent = [known.label for name, known in ESTIMATORS.items() if name not in trained]
    times = "c" if layers_of(points) else "b"
    both = f"(a), ({times})"
    lines = [f"{both} {' and '.join(absent)} was not trained with this budget."] if trained and absent else []
    runs = {(point.trained_with, point.seed) for point in points if point.quantity == "val_elbo"}
    counts = set(Counter(name for name, _ in runs).values())
    if counts and max(counts) > 1:
        most = f"{max(counts)}" if len(counts) == 1 else f"up to {max(counts)}"
        widest = f"after half of the steps they are at most {_widest_band(points):.1f} nats wide"
        lines += [f"{both} Means over {most} seeds; the bands reach from the lowest to the highest: {widest}."]
    if shared := at_shared_weights(points):
        apart = ": the narrow part, by layer, with standard errors" if len(_image_counts(shared)) > 1 else ""
        lines += [f"(b) Both at the weights of {run_words(shared)}: sampled total variance, {amount(shared)}{apart}."]
    clocks = "each run's training clock, slower if the machine had other work; `releg bench` times a step"
    return [*lines, f"({times}) Not in the paper: {clocks}."]


def _widest_band(points: list[Point]) -> float:
    """How far the seeds of an estimator are apart at most, in the second half of training."""
    bounds = [point for point in points if point.quantity == "val_elbo"]
    half = max(point.step for point in bounds) / 2
    widths = [0.0]
    for estimator in ESTIMATORS:
        mine, _ = _by_length([point for point in bounds if point.trained_with == estimator])
        for step in {point.step for point in mine if point.step >= half}:
            here = [point.value for point in mine if point.step == step]
            widths.append(max(here) - min(here))
    return max(widths)


def _image_counts(points: list[Point]) -> list[int]:
    return sorted({point.num_images or 0 for point in points})


def _draw_variances(axes: Axes, points: list[Point]) -> None:
    """The sampled total variance, within plus between images, of both estimators at the same weights."""
    shared = [p for p in at_shared_weights(points) if p.quantity == "total" and p.value > 0]
    fewest, *more = _image_counts(shared) or [0]
    along = [point for point in shared if (point.num_images or 0) == fewest]
    for estimator in ESTIMATORS:
        for layer in layers_of(points):
            mine = [p for p in along if p.estimator == estimator and p.layer == layer]
            steps = sorted(set(map(measurement, mine)))
            values = [number(mine, estimator, "total", layer, at)[0] for at in steps]
            line, marker = LAYER_STYLES[(layer - 1) % len(LAYER_STYLES)]
            look = {"color": ESTIMATORS[estimator].colour, "linewidth": 1.0, **_marker(estimator, marker, 1)}
            axes.plot([at.step for at in steps], values, linestyle=line, **look)
    if more:  # not joined: LR's value grows with their number
        axes.set_title(f"{_short_steps(fewest)} images", fontsize=6.5)
        _draw_on_most_images(axes, [point for point in shared if (point.num_images or 0) == more[-1]])
    axes.set_xscale("log")
    axes.set_yscale("log")
    is_short = bool(along) and max(p.step for p in along) < 100 * max(1, min(p.step for p in along))
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if is_short else (1.0,)))
    axes.xaxis.set_major_formatter(FuncFormatter(_short_steps))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(LogLocator(numticks=9))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylabel("gradient variance (nats²)")
    axes.set_xlabel("training steps")


def _draw_on_most_images(axes: Axes, points: list[Point]) -> None:
    """A narrow part beside the panel, with its own axis: layer by layer, the measurement at the end of training."""
    strip = make_axes_locatable(axes).append_axes("right", size="24%", pad=0.05, sharey=axes)
    at = largest(points)
    for estimator in ESTIMATORS:
        for layer in sorted({point.layer or 0 for point in points if point.estimator == estimator}):
            value, error = number(points, estimator, "total", layer, at)
            colour, (_, marker) = ESTIMATORS[estimator].colour, LAYER_STYLES[(layer - 1) % len(LAYER_STYLES)]
            strip.plot([layer], [value], linestyle="none", color=colour, **_marker(estimator, marker, 1))
            strip.errorbar([layer], [value], [error], fmt="none", ecolor=colour, elinewidth=0.8, zorder=2)
    layers = layers_of(points)
    strip.set_xlim(layers[0] - 0.7, layers[-1] + 0.7)
    strip.set_xticks(layers, list(map(str, layers)), fontsize=5.5)
    strip.set_xlabel("layer")
    strip.set_title(f"{_short_steps(at.images)} images", fontsize=6.5)
    strip.tick_params(left=False, labelleft=False)
    strip.grid(True, axis="y", which="major", linewidth=0.3, color="0.88")
    strip.set_axisbelow(True)


def _marker(estimator: str, marker: str, count: int) -> dict[str, Any]:
    """LR has open markers, in front of CRN's filled ones; a long curve has fewer markers than points."""
    return {
        "marker": marker,
        "markersize": 3.2,
        "markeredgewidth": 0.8,
        "markerfacecolor": "white" if estimator == "lr" else ESTIMATORS[estimator].colour,
        "markevery": max(1, count // 8),
        "zorder": 2.2 if estimator == "lr" else 2.1,
    }


def _legend(points: list[Point]) -> list[Line2D]:
    handles = [
        Line2D([], [], color=known.colour, linewidth=1.2, label=known.label, **_marker(estimator, "o", 1))
        for estimator, known in ESTIMATORS.items()
        if any(point.estimator == estimator for point in points)
    ]
    for layer in layers_of(points):
        line, marker = LAYER_STYLES[(layer - 1) % len(LAYER_STYLES)]
        label = f"layer {layer} (next to x)" if layer == 1 else f"layer {layer}"
        handles.append(
            Line2D([], [], color="0.3", linestyle=line, marker=marker, markersize=3.2, linewidth=1.0, label=label)
        )
    return handles
