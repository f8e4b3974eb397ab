"""What all launchers share: the contract Launcher, Job, Ended, judge."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, NamedTuple

from lightning_modules.grid.plan import RunStatus
from lightning_modules.grid.process import last_words
from lightning_modules.run.result import read_result
from releg.records.file_names import METRICS

TAIL = 2000  # bytes of metrics.csv, more than the rows that are logged together


class Progress(NamedTuple):
    """How far a run is."""

    step: int
    elbo: float  # of the last batch that was logged


def read_progress(metrics: Path) -> Progress | None:
    """What the last rows of a metrics.csv say, of which the first and the last may be cut; None if they say nothing."""
    with metrics.open("rb") as file:
        file.seek(max(0, metrics.stat().st_size - TAIL))
        rows = [line.split(",") for line in file.read().decode(errors="replace").splitlines()[1:]]
    elbos = [(row[0], row[3]) for row in rows if len(row) == 4 and row[2] == "train/elbo"]
    try:
        return Progress(int(elbos[-1][0]), float(elbos[-1][1])) if elbos else None
    except ValueError:
        return None


@dataclass
class Job:
    """A run that is being made or, on a cluster, is waiting for its turn."""

    status: RunStatus
    started: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self._metrics = self.status.folder / METRICS
        self._before = self._changed()  # by an earlier process, which was interrupted

    def progress(self) -> Progress | None:
        """How far it is; none before training starts."""
        return None if self._changed() == self._before else read_progress(self._metrics)

    def _changed(self) -> int:
        return self._metrics.stat().st_mtime_ns if self._metrics.is_file() else 0

    @property
    def seconds(self) -> float:
        """Seconds since it was started."""
        return time.monotonic() - self.started


@dataclass(frozen=True)
class Ended:
    """A run that has ended; the problem is empty if it is finished."""

    status: RunStatus
    seconds: float
    problem: str


# Called a few times a second with the running jobs, and those that ended since the last call
OnUpdate = Callable[[list[Job], list[Ended]], None]


@dataclass(frozen=True)
class Launcher(ABC):
    """Makes runs: on this machine, on a cluster.

    A launcher is a module with a function `opened(options, runs, lock)`, a context that yields its Launcher; `runs` is
    how many the command asks for, `lock` the file descriptor of the lock on the results. options.LAUNCHERS names it.
    """

    jobs: int  # runs at a time
    threads: int  # of each run
    place: ClassVar[str] = ""  # where the runs are made, if not on this machine

    @abstractmethod
    def run_all(self, waiting: Sequence[RunStatus], on_update: OnUpdate) -> None:
        """Make all runs, in their order, `jobs` at a time; one that fails does not stop the others."""


def judge(job: Job, code: int) -> Ended:
    """Find out how a run ended from its process's exit code and its folder."""
    problem = ""
    try:
        if code != 0 or read_result(job.status.folder) is None:
            problem = last_words(job.status.folder, code)
    except ValueError as error:
        problem = str(error)
    return Ended(job.status, job.seconds, problem)
