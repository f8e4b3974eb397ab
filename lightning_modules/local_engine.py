"""Runs of the grid on this machine: a process each, some at a time; none outlives the one that started it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from lightning_modules import progress_file, supervised
from lightning_modules.grid import Placed, read_result
from lightning_modules.progress_file import Progress, read_progress

LOG = "log.txt"  # in the run's folder: all that its processes printed
PROGRESS = "progress.json"
SECONDS_BETWEEN_LOOKS = 0.2
SECONDS_TO_STOP = 5.0
THREAD_VARIABLES = ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS")  # those of the user win
BYTES_PER_JOB = 2 * 1024**3  # a run takes one, and its system something


@dataclass
class Job:
    """A run that is being made."""

    placed: Placed
    process: subprocess.Popen[bytes]
    started: float  # monotonic
    first_step: int | None = None  # where it started or continued, once known

    def progress(self) -> Progress | None:
        """How far it is; none before training starts."""
        now = read_progress(self.placed.folder / PROGRESS)
        if now is not None and self.first_step is None:
            self.first_step = now.step
        return now

    @property
    def seconds(self) -> float:
        """Since it was started."""
        return time.monotonic() - self.started


@dataclass(frozen=True)
class Ended:
    """A run that has ended; the problem is empty if it is finished."""

    placed: Placed
    seconds: float
    problem: str


def default_jobs(runs: int) -> int:
    """As many as there are cores and memory for: steps this small gain little from a second thread.

    A GPU is left to one run at a time.
    """
    if torch.cuda.is_available():
        return 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(runs, _cores(), memory // BYTES_PER_JOB))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads_per_job(jobs: int) -> int:
    """The cores of this process, divided; or what the user's environment says."""
    asked = os.environ.get(THREAD_VARIABLES[0], "")
    if asked.isdecimal() and int(asked) > 0:
        return int(asked)
    return max(1, _cores() // jobs)


def run_all(
    waiting: Sequence[Placed], jobs: int, keep_open: int, look: Callable[[list[Job], list[Ended]], None]
) -> None:
    """Make all runs, `jobs` at a time, each in a process of its own; one that fails does not stop the others.

    Args:
        waiting: the runs, in their order.
        jobs: how many at a time.
        keep_open: a file descriptor that the processes inherit: a lock on it is held until the last one is gone.
        look: called a few times a second with the running jobs and those that ended since the last call.
    """
    queue = list(waiting)
    with _running() as running:
        while queue or running:
            ended = [_end(job) for job in running if job.process.poll() is not None]
            running[:] = [job for job in running if job.process.returncode is None]
            while queue and len(running) < jobs:
                placed = queue.pop(0)
                try:
                    running.append(_start(placed, threads_per_job(jobs), keep_open))
                except OSError as error:
                    ended.append(Ended(placed, 0.0, f"could not be started: {error}"))
            look(running, ended)
            time.sleep(SECONDS_BETWEEN_LOOKS)


@contextmanager
def _running() -> Iterator[list[Job]]:
    """The running jobs; whatever ends the loop ends them, and waits until they are gone."""
    running: list[Job] = []
    try:
        yield running
    finally:
        for job in running:
            job.process.terminate()
        deadline = time.monotonic() + SECONDS_TO_STOP
        for job in running:
            try:
                job.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                job.process.kill()
                job.process.wait()
            _remove_progress(job.placed.folder)


def _start(placed: Placed, threads: int, keep_open: int) -> Job:
    placed.folder.mkdir(parents=True, exist_ok=True)
    _remove_progress(placed.folder)
    environment = {
        **dict.fromkeys(THREAD_VARIABLES, str(threads)),
        "OMP_WAIT_POLICY": "PASSIVE",  # spinning threads slow each other down where others need the cores too
        **os.environ,
        supervised.VARIABLE: str(os.getpid()),
        progress_file.VARIABLE: str(placed.folder / PROGRESS),
    }
    command = [sys.executable, "-m", "lightning_modules.supervised", "fit", *placed.run.arguments]
    with (placed.folder / LOG).open("ab") as log:
        log.write(f"--- {placed.run}, {time.strftime('%Y-%m-%d %H:%M:%S')}\n".encode())
        log.flush()
        process = subprocess.Popen(
            command,
            cwd=Path(__file__).parents[1],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C goes to this process, which ends its jobs in order
            pass_fds=[keep_open],
        )
    return Job(placed, process, time.monotonic())


def _end(job: Job) -> Ended:
    _remove_progress(job.placed.folder)
    problem = ""
    try:
        if job.process.returncode != 0 or read_result(job.placed.folder) is None:
            problem = _last_words(job.placed.folder / LOG, job.process.returncode)
    except ValueError as error:
        problem = str(error)
    return Ended(job.placed, job.seconds, problem)


def _last_words(log: Path, code: int) -> str:
    """The sentence that the command ended with, or else its exit code and its last line."""
    how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code} and no result"
    try:
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        return how
    if lines and lines[-1].startswith("releg: "):
        return lines[-1].removeprefix("releg: ")
    last = f": {lines[-1]}" if lines and not lines[-1].startswith("---") else ""
    return f"{how}{last} (all it said is in {log})"


def _remove_progress(folder: Path) -> None:
    (folder / PROGRESS).unlink(missing_ok=True)
