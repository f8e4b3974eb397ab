"""The settings of runs as a table, which stands on every page about trained models."""

from __future__ import annotations

from collections.abc import Sequence

from releg.records.names import label_of
from releg.records.runs import Entry
from releg.report.numbers import count, distinct
from releg.report.page import Column, made_by, markdown

SCHEDULES = """Schedules: linear, the rate falls from its peak to zero in a straight line; cosine, as half a cosine
wave; hold then linear, in a straight line after half of the steps. A warm-up multiplies the rate by a factor that rises
from zero to one in that many steps."""
Group = list[Entry]  # runs of one net with the same settings


def _threads(runs: Group) -> str:
    entries = [entry for run in runs for entry in run.provenance]
    return distinct(sorted({entry["torch_threads"] for entry in entries if "torch_threads" in entry}))


COLUMNS: list[Column[Group]] = [
    Column("SBN", lambda runs: runs[0].net, is_text=True),
    Column("estimators", lambda runs: distinct(label_of(run.estimator) for run in runs), is_text=True),
    Column("steps", lambda runs: count(runs[0].steps)),
    Column("recipe", lambda runs: runs[0].recipe, is_text=True),
    Column("seeds", lambda runs: distinct(sorted({run.seed for run in runs}))),
    Column("threads", _threads),
]


def settings(runs: Sequence[Entry]) -> str:
    """A section with a row per net and group of equal settings, and what made the runs."""
    groups: dict[tuple[object, ...], Group] = {}
    for run in runs:
        groups.setdefault((run.net, run.steps, run.recipe), []).append(run)
    processes = [entry for run in runs for entry in run.provenance]
    return "\n\n".join(["## Settings", markdown(COLUMNS, list(groups.values())), SCHEDULES, made_by(processes)])
