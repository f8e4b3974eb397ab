"""race.md: which estimator gets to a bound first, by the clocks of runs that differ only in their estimators."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MultipleLocator, NullLocator

from releg.records.file_names import RACE_RUNS
from releg.records.names import ESTIMATORS, label_of
from releg.records.runs import Entry, read_runs
from releg.report.curves import Bound, bounds_of
from releg.report.figure import in_style, write_figure
from releg.report.numbers import count, nats, one_decimal
from releg.report.page import Column, markdown, remove, write_page
from releg.report.settings import settings

TARGETS = (130.0, 125.0, 120.0, 115.0, 110.0, 105.0, 100.0)  # nats per image, easiest first
LR = "lr"
SPAN = 36.0  # nats below the best bound that a panel shows
PANELS_PER_ROW = 6

CAPTION = """# Which estimator gets there first on SBN({net})

Negative bounds in nats per image (lower is better), means over seeds, against the time spent in training steps by each
run's own clock. The lowest bound at LR's time comes first.

- at LR's time: the validation bound after {minutes:.1f} minutes, which LR needs for its {steps} steps. A run that ended
  earlier shows its last bound, marked with *. Where the learning rate falls, it does so over the steps of each run: a
  slow estimator is seen in the middle of its schedule, and no run goes on after its last step
- minutes to: a validation bound, interpolated between validations; – if not every seed reaches it
- test: the bound on the test images after all steps; also with {samples} samples

![validation bound against minutes](race.png)

Each panel names one estimator: its line is thick, dashed if it is biased, dotted if it climbs another bound. Thin: CRN
blue, LR orange, all others grey; first seeds. The vertical line is LR's time. Panels in the order of the table.
"""


class Racer(NamedTuple):
    """An estimator, the curve of each of its runs, and the seconds that LR needs for its steps."""

    runs: list[Entry]
    curves: list[list[Bound]]
    lr_seconds: float

    @property
    def at_lr_time(self) -> float:
        """The negative bound at LR's time."""
        return -statistics.fmean(value_at(curve, self.lr_seconds) for curve in self.curves)

    @property
    def minutes(self) -> float:
        """The minutes that all its steps take, on average over its runs."""
        return statistics.fmean(curve[-1].seconds for curve in self.curves) / 60

    def minutes_to(self, target: float) -> float | None:
        """The mean time until the validation bound is this low; None unless every seed gets there."""
        times = [seconds_to(curve, -target) for curve in self.curves]
        reached = [time for time in times if time is not None]
        return statistics.fmean(reached) / 60 if len(reached) == len(times) else None

    def mean(self, name: str) -> str:
        """The mean over seeds of a bound at the end of training, negative, as a text."""
        return nats(-statistics.fmean(run.result[name] for run in self.runs))


def write_race(results: Path) -> str:
    """Write race.md, .csv and .png; without LR there is no race, and old files are deleted."""
    path = results / "race.csv"
    racers = race(results)
    if not racers:
        remove(path, path.with_suffix(".md"), path.with_suffix(".png"))
        return ""
    write_figure(path.with_suffix(".png"), draw(racers), dpi=200)
    runs = [run for racer in racers for run in racer.runs]
    steps, samples = runs[0].steps, runs[0].config["model.test_samples"]
    facts = {"net": runs[0].net, "minutes": racers[0].lr_seconds / 60, "steps": count(steps), "samples": samples}
    return write_page(
        path.with_suffix(".md"), CAPTION.format(**facts), markdown(_columns(racers), racers), settings(runs)
    )


def race(results: Path) -> list[Racer]:
    """All estimators, the lowest bound at LR's time first; none without LR."""
    runs = read_runs(results, RACE_RUNS) if (results / RACE_RUNS).is_file() else []
    runs = [run for run in runs if run.net == runs[0].net]  # one race, one net
    bounds = bounds_of(runs, results / "race.csv")
    curves = {run: [bound for bound in bounds if bound[:2] == run] for run in dict.fromkeys(b[:2] for b in bounds)}
    ends = [curve[-1].seconds for (name, _), curve in curves.items() if name == LR]
    if not ends:
        return []
    racers = [
        Racer(
            [run for run in runs if run.estimator == name],
            [curve for (other, _), curve in curves.items() if other == name],
            statistics.fmean(ends),
        )
        for name in dict.fromkeys(name for name, _ in curves)
    ]
    return sorted(racers, key=lambda racer: racer.at_lr_time)


def _columns(racers: Sequence[Racer]) -> list[Column[Racer]]:
    reached = [target for target in TARGETS if any(racer.minutes_to(target) is not None for racer in racers)]
    return [
        Column("estimator", lambda racer: racer.runs[0].title, is_text=True),
        Column("at LR's time", lambda racer: nats(racer.at_lr_time) + "*" * (60 * racer.minutes < racer.lr_seconds)),
        *map(_column_of, reached),
        Column("minutes in all", lambda racer: one_decimal(racer.minutes)),
        Column("test", lambda racer: racer.mean("test/elbo")),
        Column("test, samples", lambda racer: racer.mean("test/multi_sample_bound")),
    ]


def _column_of(target: float) -> Column[Racer]:
    def cell(racer: Racer) -> str:
        minutes = racer.minutes_to(target)
        return "–" if minutes is None else f"{minutes:.2f}"

    return Column(f"minutes to {target:g}", cell)


def value_at(curve: Sequence[Bound], seconds: float) -> float:
    """The bound at that time, linear between measurements; the first before them, the last after them."""
    return float(np.interp(seconds, [bound.seconds for bound in curve], [bound.value for bound in curve]))


def seconds_to(curve: Sequence[Bound], target: float) -> float | None:
    """The time at which the bound is first reached, linear between measurements; None if it is not."""
    first = next((place for place, bound in enumerate(curve) if bound.value >= target), None)
    if first is None:
        return None
    around = curve[max(first - 1, 0) : first + 1]
    return float(np.interp(target, [bound.value for bound in around], [bound.seconds for bound in around]))


@in_style
def draw(racers: Sequence[Racer]) -> Figure:
    """One panel per estimator, with the lines of all others behind its own."""
    columns = min(PANELS_PER_ROW, len(racers))
    rows = -(-len(racers) // columns)
    figure = Figure(figsize=(7.2, 1.2 * rows + 0.6), layout="constrained")
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flatten()
    best = max(bound.value for racer in racers for bound in racer.curves[0])
    panels[0].set(xscale="log", ylim=(best - SPAN, best + 2))
    panels[0].yaxis.set_major_locator(MultipleLocator(10))
    panels[0].xaxis.set_major_locator(LogLocator(subs=(1, 3)))
    panels[0].xaxis.set_minor_locator(NullLocator())
    panels[0].xaxis.set_major_formatter(FuncFormatter(lambda minutes, _: f"{minutes:g}"))
    for panel, racer in zip(panels, racers, strict=False):
        panel.axvline(racer.lr_seconds / 60, color="0.8", linewidth=0.6, zorder=0)
        for other in racers:
            _draw_line(panel, other, is_named=other is racer)
        panel.set_title(label_of(racer.runs[0].estimator, racer.runs[0].label), fontsize=7, pad=2)
        panel.tick_params(labelsize=6.5, length=2)
    for panel in panels[len(racers) :]:
        panel.set_visible(False)
    figure.supxlabel("minutes of training", fontsize=8)
    figure.supylabel("validation bound (nats)", fontsize=8)
    return figure


def _draw_line(panel: Axes, racer: Racer, is_named: bool) -> None:
    run = racer.runs[0]
    of_paper = ESTIMATORS.get(run.estimator)
    colour = of_paper.colour if of_paper else "0.1" if is_named else "0.85"
    style = "--" if not run.unbiased else "-" if run.objective == "elbo" else ":"
    order = 3 if is_named else 2 if of_paper else 1
    minutes = [bound.seconds / 60 for bound in racer.curves[0]]
    bounds = [bound.value for bound in racer.curves[0]]
    panel.plot(minutes, bounds, color=colour, linewidth=1.6 if is_named else 0.7, linestyle=style, zorder=order)
