"""records.md: how many minutes of training the paper's bounds take, the shortest way first."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

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


class Attempt(NamedTuple):
    """Runs of one net that differ only in their seeds."""

    runs: list[Entry]

    @property
    def estimator(self) -> str:
        """The one that all of them have."""
        return self.runs[0].estimator

    @property
    def is_record(self) -> bool:
        """Whether it has enough seeds."""
        return len({run.seed for run in self.runs}) >= SEEDS

    @property
    def bounds(self) -> list[float]:
        """The negative test bound of each run."""
        return [-run.result["test/elbo"] for run in self.runs]

    @property
    def minutes(self) -> float:
        """The mean over runs."""
        return statistics.fmean(run.result["training_seconds"] for run in self.runs) / 60

    @property
    def processes(self) -> list[dict[str, Any]]:
        """What made the runs."""
        return [process for run in self.runs for process in run.provenance]


COLUMNS: list[Column[Attempt]] = [
    Column("estimator", lambda attempt: label_of(attempt.estimator), is_text=True),
    Column("minutes", lambda attempt: one_decimal(attempt.minutes)),
    Column("steps", lambda attempt: count(attempt.runs[0].steps)),
    Column("recipe", lambda attempt: attempt.runs[0].recipe, is_text=True),
    Column("negative elbo", lambda attempt: nats(statistics.fmean(attempt.bounds))),
    Column("of each seed", lambda attempt: ", ".join(map(nats, attempt.bounds)), is_text=True),
    Column("seeds", lambda attempt: distinct(run.seed for run in attempt.runs), is_text=True),
    Column("machine", lambda attempt: distinct(map(machine, attempt.processes)), is_text=True),
    Column("commits", lambda attempt: distinct(commit(process)[:7] for process in attempt.processes), is_text=True),
]


def write_records(results: Path) -> str:
    """Write records.md from the runs of the published table and of the budgets in folders beside it."""
    paths = [path for path in (results / RUNS, *sorted(results.glob(f"*/{RUNS}"))) if path.is_file()]
    attempts = attempts_of([run for path in paths for run in read_runs(path.parent)])
    tables = [
        _table(net, name, bound, attempts)
        for net, bounds in read_paper(results).items()
        for name, bound in bounds.items()
    ]
    if not any(tables):
        remove(results / RECORDS_PAGE)
        return ""
    return write_page(results / RECORDS_PAGE, CAPTION, *tables)


def attempts_of(runs: Sequence[Entry]) -> list[Attempt]:
    """Runs on one thread by net, estimator and recipe; the fastest first."""
    groups: dict[tuple[object, ...], list[Entry]] = {}
    for run in runs:
        if {process.get("torch_threads") for process in run.provenance} == {1}:
            groups.setdefault((*run.cell, run.steps, run.recipe), []).append(run)
    return sorted(map(Attempt, groups.values()), key=lambda attempt: attempt.minutes)


def _table(net: str, name: str, bound: float, attempts: Sequence[Attempt]) -> str:
    """Which attempts reach the bound of the paper's estimator of that name; empty if no record does."""
    of_net = [attempt for attempt in attempts if attempt.runs[0].net == net]
    reached = [attempt for attempt in of_net if statistics.fmean(attempt.bounds) <= bound]
    with_record = {attempt.estimator for attempt in reached if attempt.is_record}
    shown = [attempt for attempt in reached if attempt.is_record or attempt.estimator not in with_record]
    heading = f"## SBN({net}): {nats(bound)}, the paper's {label_of(name)}"
    return f"{heading}\n\n{markdown(COLUMNS, shown)}" if with_record else ""
