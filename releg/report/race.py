"""race.md: every estimator at its best of three rates, by steps and by minutes; and the protocol of later papers."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from releg.files import readable
from releg.records.file_names import PROTOCOL_CURVES, RACE
from releg.records.names import ESTIMATORS, label_of
from releg.records.race import CHOOSING_SEED, LR, NETS, RATES, SEEDS, Run, chosen_rate, runs_of, seeds_of
from releg.report import protocol
from releg.report.figure import in_style, number_ticks, write_figure
from releg.report.numbers import count, distinct, nats, plus_minus
from releg.report.page import Column, markdown, remove, write_page

TARGETS = (125.0, 115.0, 110.0, 105.0, 102.0)  # nats per image, fixed beforehand
CURVES = 12  # that a panel shows at most
SPAN = 30.0  # nats below the best bound that a panel shows
PAPERS = {known.config: known.colour for known in ESTIMATORS.values()}
LOOKS = [(colour, style) for style in ("-", "--", ":") for colour in ("0.1", "#8c2d04", "#238b45", "#88419d", "0.6")]

CAPTION = """# Which estimator gets there first

Negative elbos in nats per image (lower is better). Every estimator trains for {steps} steps on one thread, with each
of the peak rates {rates}, held for half of the steps after the same warm-up, then falling to zero in a
straight line. The best validation elbo with seed {choosing} chooses the rate; the numbers are means ± standard
deviations over the seeds {seeds} at that rate. The lowest one after equal steps comes first.

- after equal minutes: at the time that LR needs for its steps, by each run's own clock of its training steps,
  linear between validations: a slow estimator is seen there before its rate has fallen. A run that ended earlier shows
  its last value, marked with *
- minutes to: a validation elbo; "2 of 3" if only so many seeds reach it, – if none does
- runs: finished ones of the {runs} that choose the rate and count. Without all of them, the row is not final

![validation elbo against minutes](race.png)

Means over seeds, at most {curves} curves per net. Dashed and dotted lines only tell curves apart.
"""


class Racer(NamedTuple):
    """One estimator on one net: all its runs, and the seconds that LR needs there, once they are known."""

    runs: list[Run]
    lr_seconds: float | None

    @property
    def counted(self) -> list[Run]:
        """The runs at the chosen rate."""
        return seeds_of(self.runs)

    @property
    def title(self) -> str:
        """What tables call it."""
        run = self.runs[0]
        return label_of(run["estimator"], run["label"], run["unbiased"], run["objective"])

    @property
    def order(self) -> float:
        """The mean bound after all steps; those without one come last."""
        return -statistics.fmean(run["val/elbo"] for run in self.counted) if self.counted else np.inf


def write_race(results: Path) -> str:
    """Write race.md and race.png; where there is no race, the protocol of later papers is a page of its own."""
    path, page = results / RACE, results / "protocol.md"
    later = protocol.section(results) if (results / PROTOCOL_CURVES).is_file() else []
    if not path.is_file():
        return write_page(page, f"# {protocol.TITLE}", *later[1:])
    remove(page)
    with readable(path, "what python -m lightning_modules.studies.race writes", "run it again"):
        nets = {net: racers_of(json.loads(path.read_bytes()), net) for net in NETS}
        nets = {net: racers for net, racers in nets.items() if racers}
        runs = [run for racers in nets.values() for racer in racers for run in racer.runs]
        caption = CAPTION.format(
            steps=count(runs[0]["steps"]),
            rates=distinct(RATES),
            choosing=CHOOSING_SEED,
            seeds=distinct(SEEDS),
            runs=len(RATES) + len(SEEDS),
            curves=CURVES,
        )
        tables = [part for net, racers in nets.items() for part in _section(net, racers)]
        made = "\n".join(f"- {what}: {distinct(run[what] for run in runs)}" for what in ("commit", "machine"))
    write_figure(results / "race.png", draw(nets), dpi=200)
    return write_page(results / "race.md", caption, *tables, *later, "## How it was made", made)


def racers_of(runs: Sequence[Run], net: str) -> list[Racer]:
    """All estimators that have a run on that net, the lowest bound after equal steps first."""
    own = {name: runs_of(runs, net, name) for name in dict.fromkeys(run["estimator"] for run in runs)}
    lr = seeds_of(own.get(LR, []))
    seconds = statistics.fmean(run["curve"][-1][1] for run in lr) if lr else None
    return sorted((Racer(each, seconds) for each in own.values() if each), key=lambda racer: racer.order)


def _section(net: str, racers: Sequence[Racer]) -> list[str]:
    seconds, samples = racers[0].lr_seconds, racers[0].runs[0]["samples"]
    at_lr_time = "after equal minutes" if seconds is None else f"after {seconds / 60:.1f} minutes"
    columns = [
        Column[Racer]("estimator", lambda racer: racer.title, is_text=True),
        Column[Racer]("rate", lambda racer: str(chosen_rate(racer.runs) or "–")),
        Column[Racer]("after all steps", lambda racer: _spread(racer, lambda run: -run["val/elbo"])),
        Column[Racer](at_lr_time, _after_equal_minutes),
        *map(_column_of, TARGETS),
        Column[Racer]("minutes in all", lambda racer: _spread(racer, lambda run: run["curve"][-1][1] / 60)),
        Column[Racer]("test", lambda racer: _spread(racer, lambda run: -run["test/elbo"])),
        Column[Racer](
            f"test, {samples} samples", lambda racer: _spread(racer, lambda run: -run["test/multi_sample_bound"])
        ),
        Column[Racer]("runs", lambda racer: f"{len(racer.runs)} of {len(RATES) + len(SEEDS)}"),
    ]
    trials = [Column[Racer]("estimator", lambda racer: racer.title, is_text=True), *map(_trial_column, RATES)]
    choice = f"Validation elbos with seed {CHOOSING_SEED}, by peak rate:"
    return [f"## SBN({net})", markdown(columns, racers), choice, markdown(trials, racers)]


def _spread(racer: Racer, number: Callable[[Run], float]) -> str:
    """Mean and standard deviation over seeds."""
    values = [number(run) for run in racer.counted]
    if not values:
        return "–"
    return plus_minus(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)


def _after_equal_minutes(racer: Racer) -> str:
    seconds = racer.lr_seconds
    if seconds is None:
        return "–"
    ended = any(run["curve"][-1][1] < seconds for run in racer.counted if run["estimator"] != LR)
    return _spread(racer, lambda run: -value_at(run["curve"], seconds)) + "*" * ended


def _column_of(target: float) -> Column[Racer]:
    def cell(racer: Racer) -> str:
        times = [seconds_to(run["curve"], -target) for run in racer.counted]
        reached = {id(run): time for run, time in zip(racer.counted, times, strict=True) if time is not None}
        if not reached:
            return "–"
        if len(reached) < len(times):
            return f"{len(reached)} of {len(times)}"
        minutes = iter(reached.values())
        return _spread(racer, lambda _: next(minutes) / 60)

    return Column(f"minutes to {target:g}", cell)


def _trial_column(rate: float) -> Column[Racer]:
    def cell(racer: Racer) -> str:
        bounds = [run["val/elbo"] for run in racer.runs if (run["rate"], run["seed"]) == (rate, CHOOSING_SEED)]
        return nats(-bounds[0]) if bounds else "–"

    return Column(str(rate), cell)


def value_at(curve: Sequence[Sequence[float]], seconds: float) -> float:
    """The bound at that time, linear between measurements; the first before them, the last after them."""
    return float(np.interp(seconds, [point[1] for point in curve], [point[2] for point in curve]))


def seconds_to(curve: Sequence[Sequence[float]], target: float) -> float | None:
    """The time at which the bound is first reached, linear between measurements; None if it is not."""
    first = next((place for place, point in enumerate(curve) if point[2] >= target), None)
    if first is None:
        return None
    around = curve[max(first - 1, 0) : first + 1]
    return float(np.interp(target, [point[2] for point in around], [point[1] for point in around]))


@in_style
def draw(nets: dict[str, list[Racer]]) -> Figure:
    """A panel for each net, with a legend in the order of its table."""
    figure = Figure(figsize=(7.2, 3.1 * len(nets)), layout="constrained")
    for panel, (net, racers) in zip(figure.subplots(len(nets), 1, squeeze=False)[:, 0], nets.items(), strict=True):
        panel.set_title(f"SBN({net})", loc="left", fontsize=8)
        _draw_panel(panel, shown(racers))
    figure.supxlabel("minutes of training", fontsize=8)
    figure.supylabel("validation elbo (nats)", fontsize=8)
    return figure


def shown(racers: Sequence[Racer]) -> list[Racer]:
    """The first ones of the table, and LR."""
    finished = [racer for racer in racers if racer.counted]
    if any(racer.runs[0]["estimator"] == LR for racer in finished[CURVES:]):
        lr = next(racer for racer in finished if racer.runs[0]["estimator"] == LR)
        return [*finished[: CURVES - 1], lr]
    return finished[:CURVES]


def _draw_panel(panel: Axes, racers: Sequence[Racer]) -> None:
    panel.set(xscale="log")
    looks = iter(LOOKS)
    curves: list[Any] = [np.mean([np.array(run["curve"]) for run in racer.counted], axis=0) for racer in racers]
    lowest = max((curve[:, 2].max() for curve in curves), default=0.0) - SPAN
    for racer, curve in zip(racers, curves, strict=True):
        name = racer.runs[0]["estimator"]
        colour, style = (PAPERS[name], "-") if name in PAPERS else next(looks)
        points = curve[curve[:, 2] > lowest]
        width = 1.8 if name in PAPERS else 1.0
        panel.plot(points[:, 1] / 60, points[:, 2], style, color=colour, linewidth=width, label=racer.title)
    if racers:
        panel.legend(loc="upper left", bbox_to_anchor=(1.01, 1), fontsize=6.5)
    panel.grid(which="major")
    number_ticks(panel.xaxis)
