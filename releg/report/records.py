"""records.md: how many minutes of training the paper's bounds take, the shortest way first."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from releg.records.file_names import RECORDS_PAGE, RUNS
from releg.records.names import label_of
from releg.records.runs import Entry, commit, read_runs
from releg.report.numbers import count, distinct, nats, one_decimal
from releg.report.page import Column, machine, markdown, remove, write_page
from releg.report.table1 import read_paper

SEEDS = 3

CAPTION = f"""# The shortest way to the paper's bounds

Minutes of training on one thread until the mean negative elbo over {SEEDS} seeds on the test images, in nats (lower is
better), is at or below one of the paper's. Only the steps are timed, all of them, as a mean over seeds. The fastest
recipe comes first; one that does not get there is not listed. One with fewer seeds is no record: it stands where its
estimator has nothing else.

Rules for a new record:

- the data, the net and batches of 100 images stay as they are
- tuning looks at the validation images only
- {SEEDS} seeds that were not used for tuning
- timed beside the record that it beats, on the same machine and in the same hours, one thread each
"""


Attempt = list[Entry]  # runs of one net that differ only in their seeds


def minutes_of(runs: Attempt) -> float:
    """The mean over runs."""
    return statistics.fmean(run.result["training_seconds"] for run in runs) / 60


def bounds_of(runs: Attempt) -> list[float]:
    """The negative test bound of each run."""
    return [-run.result["test/elbo"] for run in runs]


def made_by(runs: Attempt, fact: Callable[[dict[str, Any]], str]) -> str:
    """A fact about the processes that made the runs."""
    return distinct(fact(process) for run in runs for process in run.provenance)


COLUMNS: list[Column[Attempt]] = [
    Column("estimator", lambda runs: label_of(runs[0].estimator), is_text=True),
    Column("minutes", lambda runs: one_decimal(minutes_of(runs))),
    Column("steps", lambda runs: count(runs[0].steps)),
    Column("recipe", lambda runs: runs[0].recipe, is_text=True),
    Column("negative elbo", lambda runs: nats(statistics.fmean(bounds_of(runs)))),
    Column("of each seed", lambda runs: ", ".join(map(nats, bounds_of(runs))), is_text=True),
    Column("seeds", lambda runs: distinct(run.seed for run in runs), is_text=True),
    Column("machine", lambda runs: made_by(runs, machine), is_text=True),
    Column("commits", lambda runs: made_by(runs, lambda process: commit(process)[:7]), is_text=True),
]


def write_records(results: Path) -> str:
    """Write records.md from the runs of the published table and of the budgets in folders beside it."""
    paths = [path for path in (results / RUNS, *sorted(results.glob(f"*/{RUNS}"))) if path.is_file()]
    attempts = attempts_of([run for path in paths for run in read_runs(path.parent)])
    paper = [(net, name, bound) for net, bounds in read_paper(results).items() for name, bound in bounds.items()]
    tables = [_table(net, name, bound, attempts) for net, name, bound in paper]
    if not any(tables):
        remove(results / RECORDS_PAGE)
        return ""
    return write_page(results / RECORDS_PAGE, CAPTION, *tables)


def attempts_of(runs: Sequence[Entry]) -> list[Attempt]:
    """Runs on one thread by net, estimator and recipe; the fastest first."""
    groups: dict[tuple[object, ...], Attempt] = {}
    for run in runs:
        if {process.get("torch_threads") for process in run.provenance} == {1}:
            groups.setdefault((*run.cell, run.steps, run.recipe), []).append(run)
    return sorted(groups.values(), key=minutes_of)


def _table(net: str, name: str, bound: float, attempts: Sequence[Attempt]) -> str:
    """Which attempts reach the bound of the paper's estimator of that name; empty if no record does."""
    reached = [runs for runs in attempts if runs[0].net == net and statistics.fmean(bounds_of(runs)) <= bound]
    records = [runs for runs in reached if len({run.seed for run in runs}) >= SEEDS]
    with_record = {runs[0].estimator for runs in records}
    shown = [runs for runs in reached if runs in records or runs[0].estimator not in with_record]
    heading = f"## SBN({net}): {nats(bound)}, the paper's {label_of(name)}"
    return f"{heading}\n\n{markdown(COLUMNS, shown)}" if records else ""
