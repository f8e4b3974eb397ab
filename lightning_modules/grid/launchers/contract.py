"""What all launchers share: the contract Launcher, Job, Ended, judge."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from lightning_modules.grid.plan import RunStatus
from lightning_modules.grid.process import PROGRESS, last_words
from lightning_modules.run.parent import Progress, read_progress
from lightning_modules.run.result import read_result


@dataclass
class Job:
    """A run that is being made or, on a cluster, is waiting for its turn."""

    status: RunStatus
    started: float = field(default_factory=time.monotonic)

    def progress(self) -> Progress | None:
        """How far it is; none before training starts."""
        return read_progress(self.status.folder / PROGRESS)

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
