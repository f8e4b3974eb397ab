"""The race: which estimator gets to a bound first, by the clocks of the runs behind extended.md."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from releg.files import write_atomically, write_json
from releg.records.csv_formats import csv_text, read_csv
from releg.records.file_names import RACE
from releg.records.names import CONSTANT_RATE, label_of
from releg.report.artefacts import remove
from releg.report.race_plot import Curve, draw
from releg.report.runs import Manifest, Row, Run, bound_title, budget_sentence, machine, threads_of
from releg.report.style import as_bytes
from releg.report.tables import table

ENDINGS = (".csv", ".json", ".md", ".png")
TARGETS = (130.0, 125.0, 120.0, 115.0, 110.0, 105.0, 100.0)  # nats per image, easiest first
MOST = 0.75  # of the estimators
LR = "lr"


class Point(NamedTuple):
    """A validation bound of a run, and the seconds of training that it took."""

    estimator: str
    seed: int
    step: int
    seconds: float
    value: float  # val/elbo


def write_race(results: Path, manifest: Manifest) -> str:
    """Write race.md, .csv, .json and .png; return the Markdown.

    Runs whose folders are missing, as in a fresh clone, have their points in race.csv. Without LR there is no race:
    then old files are deleted.
    """
    path = results / RACE
    runs = [run for run in manifest.runs if run.net == manifest.runs[0].net]  # one race, one net
    elsewhere = {(run.estimator, run.seed) for run in runs if not run.is_here}
    points = [point for point in from_csv(path) if (point.estimator, point.seed) in elsewhere]
    points += [point for run in runs for point in _points(run)]
    if LR not in {point.estimator for point in points}:
        remove(*map(path.with_suffix, ENDINGS))
        return ""
    rows = race(points, runs)
    text = as_markdown(rows, runs)
    write_atomically(path, as_csv(points))
    write_json(path.with_suffix(".json"), rows, indent=2)
    write_atomically(path.with_suffix(".png"), as_bytes(draw(_curves(points, rows), rows[0]["lr_minutes"]), dpi=200))
    write_atomically(path.with_suffix(".md"), text)
    return text


def _points(run: Run) -> list[Point]:
    return [_point(row | {"estimator": run.estimator, "seed": str(run.seed)}) for row in run.validations()]


def _point(row: dict[str, str]) -> Point:
    return Point(row["estimator"], int(row["seed"]), int(row["step"]), float(row["seconds"]), float(row["value"]))


def as_csv(points: Sequence[Point]) -> str:
    """The points with a header."""
    return csv_text(Point._fields, points)


def from_csv(path: Path) -> list[Point]:
    """The points of a race.csv; none if there is no file."""
    return [_point(row) for row in read_csv(path, Point._fields, Point._fields[1:])]


def race(points: Sequence[Point], runs: Sequence[Run]) -> list[Row]:
    """One row per estimator, the winner first: least time to the decisive bound, then best bound at LR's time."""
    limit = statistics.fmean(curve[-1].seconds for curve in _by_seed(points, LR))
    names = [name for name in dict.fromkeys(run.estimator for run in runs) if _by_seed(points, name)]
    by_name = {run.estimator: run for run in runs}
    rows = [_row(by_name[name], _by_seed(points, name), limit) for name in names]
    decisive = decisive_target(rows)
    return sorted(rows, key=lambda row: _rank(row, decisive))


def decisive_target(rows: Sequence[Row]) -> str:
    """The hardest bound that most estimators reach; the easiest one if there is none.

    With a harder one, the order would reward estimators that are slow but end well.
    """
    counts = {str(target): sum(row["minutes_to"][str(target)] is not None for row in rows) for target in TARGETS}
    return next((t for t in reversed(counts) if counts[t] >= MOST * len(rows)), str(TARGETS[0]))


def _by_seed(points: Sequence[Point], estimator: str) -> list[list[Point]]:
    """The curve of each run of an estimator, in the order of its steps."""
    mine = sorted((point for point in points if point.estimator == estimator), key=lambda point: point.step)
    return [[point for point in mine if point.seed == seed] for seed in sorted({point.seed for point in mine})]


def _row(run: Run, curves: list[list[Point]], limit: float) -> Row:
    ends = [curve[-1].seconds for curve in curves]
    reached = {str(target): [seconds_to(curve, -target) for curve in curves] for target in TARGETS}
    return {
        "estimator": run.estimator,
        "unbiased": run.unbiased,
        "objective": run.objective,
        "seeds": [curve[0].seed for curve in curves],
        "steps": run.steps,
        "lr_minutes": limit / 60,
        "nll_after_lr_minutes": -statistics.fmean(value_at(curve, limit) for curve in curves),
        "minutes": statistics.fmean(ends) / 60,
        "minutes_to": {target: _mean_minutes(times) for target, times in reached.items()},
    }


def _mean_minutes(times: Sequence[float | None]) -> float | None:
    """None unless every seed got there."""
    known = [time for time in times if time is not None]
    return statistics.fmean(known) / 60 if len(known) == len(times) else None


def value_at(curve: Sequence[Point], seconds: float) -> float:
    """The bound at that time, linear between measurements; the first before them, the last after them."""
    for before, after in pairwise(curve):
        if before.seconds <= seconds < after.seconds:
            share = (seconds - before.seconds) / (after.seconds - before.seconds)
            return before.value + share * (after.value - before.value)
    return curve[0].value if seconds < curve[0].seconds else curve[-1].value


def seconds_to(curve: Sequence[Point], bound: float) -> float | None:
    """The time at which the bound is first reached, linear between measurements; None if it is not."""
    if curve[0].value >= bound:
        return curve[0].seconds
    for before, after in pairwise(curve):
        if after.value >= bound:
            share = (bound - before.value) / (after.value - before.value)
            return before.seconds + share * (after.seconds - before.seconds)
    return None


def _rank(row: Row, decisive: str) -> tuple[float, float]:
    minutes = row["minutes_to"][decisive]
    return math.inf if minutes is None else minutes, row["nll_after_lr_minutes"]


def _curves(points: Sequence[Point], rows: Sequence[Row]) -> list[Curve]:
    return [
        Curve(row["estimator"], row["unbiased"], row["objective"], [(p.seconds / 60, p.value) for p in curve])
        for row in rows
        for curve in _by_seed(points, row["estimator"])[:1]  # one seed: lines of several would cover each other
    ]


def as_markdown(rows: Sequence[Row], runs: list[Run]) -> str:
    """The table, what its columns are, and where the clocks ran."""
    minutes, targets = rows[0]["lr_minutes"], reached(rows)
    head = ["estimator", "NLL at LR's time", *(f"minutes to {float(t):g}" for t in targets), "minutes in all"]
    lines = [
        f"# Which estimator gets there first on SBN({runs[0].net})",
        "",
        f"{bound_title(runs).replace('test images', 'validation images')}, against the time spent in training "
        "steps by each run's own clock.",
        "",
        f"- NLL at LR's time: after {minutes:.1f} minutes, which LR needs for its {_lr(rows)['steps']:,} steps. A run "
        "that ended earlier shows its last bound, marked with *",
        "- minutes to a bound: interpolated between validations; – means that the run does not reach it",
        f"- the order: minutes to {float(decisive_target(rows)):g}, the hardest bound that most estimators reach",
        *_schedules(runs),
        "",
        *table(head, [_cells(row, targets) for row in rows]),
        "",
        "![bound against minutes](race.png)",
        "",
        f"{budget_sentence(runs)} {_where(runs)} {_how_often(rows, runs)}",
    ]
    return "\n".join(lines) + "\n"


def reached(rows: Sequence[Row]) -> list[str]:
    """The bounds that some estimator reaches, easiest first."""
    return [str(target) for target in TARGETS if any(row["minutes_to"][str(target)] is not None for row in rows)]


def _lr(rows: Sequence[Row]) -> Row:
    return next(row for row in rows if row["estimator"] == LR)


def _schedules(runs: Sequence[Run]) -> list[str]:
    """What a falling rate means for the comparison, if there is one."""
    if any(run.schedule != CONSTANT_RATE for run in runs):
        return [
            "- the learning rate of each run falls over its own steps, so at LR's time a slow estimator is seen in the "
            "middle of its schedule, and no run goes on after its last step"
        ]
    return []


def _cells(row: Row, targets: Sequence[str]) -> list[str]:
    early = row["minutes"] < row["lr_minutes"]
    times = [_time(row["minutes_to"][target]) for target in targets]
    return [
        label_of(row["estimator"], row["unbiased"], row["objective"]),
        f"{row['nll_after_lr_minutes']:.2f}{'*' if early else ''}",
        *times,
        f"{row['minutes']:.1f}",
    ]


def _time(minutes: float | None) -> str:
    if minutes is None:
        return "–"
    return f"{minutes:.2f}" if minutes < 1 else f"{minutes:.1f}"


def _how_often(rows: Sequence[Row], runs: Sequence[Run]) -> str:
    """The seeds and commits of the runs: both can decide a close race."""
    seeds = max(len(row["seeds"]) for row in rows)
    commits = dict.fromkeys(entry["commit"] for run in runs for entry in run.provenance if entry.get("commit"))
    text = "One seed each, so small differences mean little" if seeds == 1 else f"Means over {seeds} seeds"
    return f"{text}. {'Commit' if len(commits) == 1 else 'Commits'} {', '.join(commits)}." if commits else f"{text}."


def _where(runs: list[Run]) -> str:
    entries = [entry for run in runs for entry in run.provenance]
    machines = " and ".join(dict.fromkeys(machine(entry) for entry in entries))
    threads = threads_of(runs)
    if threads == [1]:
        return f"Every run had one thread, on {machines}."
    if not threads:
        return f"The runs were made on {machines}; their threads were not recorded."
    return f"The runs had {' and '.join(map(str, threads))} threads, on {machines}; one each would be fairer."
