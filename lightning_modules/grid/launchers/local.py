"""The local launcher: runs the grid on this machine, one process per run; none outlives the launcher."""

from __future__ import annotations

import os
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from lightning_modules.grid import process
from lightning_modules.grid.launchers.contract import Ended, Job, Launcher, OnUpdate, judge
from lightning_modules.grid.options import Options
from lightning_modules.grid.plan import RunStatus
from releg.machine import cores

BYTES_PER_JOB = 2 * 1024**3  # a run takes one GiB, the rest is for the system


@dataclass(kw_only=True)
class LocalJob(Job):
    """A run and its process."""

    process: subprocess.Popen[bytes]
    gpu: str | None = None  # the one that it has to itself or shares


def default_jobs(runs: int) -> int:
    """One job per core if there is enough memory: steps this small gain little from a second thread.

    On a GPU, one job at a time: `--jobs` asks for more.
    """
    if torch.cuda.is_available():
        return 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(runs, cores(), memory // BYTES_PER_JOB))


def threads_per_job(jobs: int) -> int:
    """Cores divided by jobs, or what the user's environment says."""
    return process.threads_asked_for() or max(1, cores() // jobs)


def identifiers() -> list[str]:
    """What CUDA_VISIBLE_DEVICES calls the GPUs here."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return given.split(",") if given else [str(place) for place in range(torch.cuda.device_count())]


def least_busy(gpus: Sequence[str], taken: Iterable[str | None]) -> str | None:
    """The GPU with the fewest runs, the first of several; none if there is no GPU."""
    runs = Counter(taken)
    return min(gpus, key=lambda gpu: runs[gpu], default=None)


@dataclass(frozen=True)
class LocalLauncher(Launcher):
    """Makes each run in a process of its own."""

    keep_open: int  # a file descriptor that the processes inherit: a lock on it is held until the last one is gone

    def run_all(self, waiting: Sequence[RunStatus], on_update: OnUpdate) -> None:
        """Make all runs."""
        queue = list(waiting)
        gpus = identifiers()
        with _running() as running:
            while queue or running:
                ended = [_end(job) for job in running if job.process.poll() is not None]
                running[:] = [job for job in running if job.process.returncode is None]
                while queue and len(running) < self.jobs:
                    status = queue.pop(0)
                    try:
                        where = least_busy(gpus, (job.gpu for job in running))
                        running.append(_start(status, self.threads, self.keep_open, where))
                    except OSError as error:
                        ended.append(Ended(status, 0.0, f"could not be started: {error}"))
                on_update(list(running), ended)
                time.sleep(process.SECONDS_BETWEEN_CHECKS)


@contextmanager
def opened(options: Options, runs: int, lock: int) -> Iterator[LocalLauncher]:
    """The launcher that a command asks for.

    Its jobs follow from all runs of the command, not from those that are left: rounding depends on the number of
    threads, and a run that is continued must go on with as many.
    """
    jobs = options.jobs or default_jobs(runs)
    yield LocalLauncher(jobs, threads_per_job(jobs), lock)


@contextmanager
def _running() -> Iterator[list[LocalJob]]:
    """The list of running jobs. However the loop ends, they are stopped and waited for."""
    running: list[LocalJob] = []
    try:
        yield running
    finally:
        process.stop([job.process for job in running])


def _start(status: RunStatus, threads: int, keep_open: int, where: str | None) -> LocalJob:
    started = process.start(status.folder, str(status.run), status.run.arguments, threads, [keep_open], where)
    return LocalJob(status, process=started, gpu=where)


def _end(job: LocalJob) -> Ended:
    return judge(job, job.process.returncode)
