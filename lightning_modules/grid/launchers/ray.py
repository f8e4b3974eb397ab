"""The Ray launcher: one task per run. A run whose worker or machine is lost continues elsewhere.

All machines see the clone, its environment and the results folder under the same paths. A task starts the process that
the local launcher would start, so the numbers are the same; progress is read from the folder. A run has one thread, or
as many as OMP_NUM_THREADS says, whatever the size of the cluster: rounding depends on it.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from lightning_modules import ROOT
from lightning_modules.grid import process
from lightning_modules.grid.launchers.contract import Ended, Job, Launcher, OnUpdate, judge
from lightning_modules.grid.options import Options
from lightning_modules.grid.plan import RunStatus
from releg.records.file_names import RESULT

RETRIES = 20  # of one run, after as many lost workers
SECONDS_TO_CANCEL = process.SECONDS_TO_STOP + 5.0
SECONDS_TO_ANSWER = 10.0


@contextmanager
def connected(address: str | None) -> Iterator[None]:
    """Join the cluster at the address, or the one that RAY_ADDRESS names; without either, start one on this machine."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent to anyone
    import ray

    own_cluster: dict[str, Any] = {} if address or os.environ.get("RAY_ADDRESS") else {"include_dashboard": False}
    terminate = signal.getsignal(signal.SIGTERM)
    try:
        _knock(address or os.environ.get("RAY_ADDRESS") or "")
        ray.init(
            address=address,
            log_to_driver=False,
            logging_level=logging.ERROR,
            runtime_env={"env_vars": {"PYTHONPATH": str(ROOT)}},
            **own_cluster,
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise ConnectionError(
            f"cannot join the Ray cluster at {address or 'RAY_ADDRESS'} ({' '.join(str(error).split())}), expected a "
            "running one; start it with `ray start --head` and give the address that this prints"
        ) from error
    signal.signal(signal.SIGTERM, terminate)  # Ray puts its own in its place
    try:
        yield
    finally:
        ray.shutdown()


def _knock(address: str) -> None:
    """Raise OSError at once if nothing listens there: Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        with socket.create_connection((host, int(port)), timeout=SECONDS_TO_ANSWER):
            pass


def places(threads: int, gpus_per_run: float) -> int:
    """How many runs fit on the cluster at a time; ValueError if none does."""
    import ray

    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    cpus, gpus = ([machine.get(kind, 0.0) for machine in machines] for kind in ("CPU", "GPU"))
    count = sum(
        int(min(cpu // threads, gpu / gpus_per_run if gpus_per_run else cpu))
        for cpu, gpu in zip(cpus, gpus, strict=True)
    )
    if count < 1:
        raise ValueError(
            f"no machine of the Ray cluster has room for a run (CPUs: {cpus}; GPUs: {gpus}), expected "
            f"{threads} CPUs and {gpus_per_run:g} GPUs on one; add machines, or ask for less with OMP_NUM_THREADS and "
            "--gpus-per-run"
        )
    return count


@dataclass(frozen=True)
class RayLauncher(Launcher):
    """Makes each run as a task of the cluster that this process has joined."""

    gpus_per_run: float  # the share of a GPU that each run takes; of CPUs it takes as many as it has threads
    place = "on a Ray cluster"

    def run_all(self, waiting: Sequence[RunStatus], on_update: OnUpdate) -> None:
        """Make all runs."""
        import ray

        task = ray.remote(num_cpus=self.threads, num_gpus=self.gpus_per_run, max_retries=RETRIES)(process.run_to_end)
        jobs: dict[Any, Job] = {}
        try:
            for status in waiting:
                arguments = (str(status.folder), str(status.run), status.run.arguments, self.threads)
                jobs[task.remote(*arguments)] = Job(status)
            started: set[Any] = set()
            while jobs:
                done, _ = ray.wait(list(jobs), num_returns=len(jobs), timeout=process.SECONDS_BETWEEN_CHECKS)
                ended = [_end(reference, jobs.pop(reference)) for reference in done]
                for reference in jobs.keys() - started:
                    if jobs[reference].progress() is not None:
                        started.add(reference)
                        jobs[reference].started = time.monotonic()
                on_update([job for reference, job in jobs.items() if reference in started], ended)
        finally:
            _cancel(list(jobs))


@contextmanager
def opened(options: Options, runs: int, lock: int) -> Iterator[RayLauncher]:
    """Join the cluster; as many runs at a time as it has room for. This process alone holds the lock."""
    del runs, lock
    threads = process.threads_asked_for() or 1
    with connected(options.ray_address):
        yield RayLauncher(places(threads, options.gpus_per_run), threads, options.gpus_per_run)


def _end(task: Any, job: Job) -> Ended:
    import ray

    try:
        code = ray.get(task)
    except ray.exceptions.RayError as error:
        reason = " ".join(str(error).split())
        return Ended(job.status, job.seconds, f"its worker died {RETRIES + 1} times: {reason}")
    deadline = time.monotonic() + process.SECONDS_TO_STOP
    while code == 0 and not (job.status.folder / RESULT).is_file() and time.monotonic() < deadline:
        time.sleep(process.SECONDS_BETWEEN_CHECKS)  # a network's file system shows it after some seconds
    return judge(job, code)


def _cancel(tasks: list[Any]) -> None:
    """Cancel the tasks and wait until their processes are gone; those that do not end are killed."""
    import ray

    for force in (False, True):
        for task in tasks:
            ray.cancel(task, force=force)
        _, tasks = ray.wait(tasks, num_returns=len(tasks), timeout=SECONDS_TO_CANCEL) if tasks else ([], [])
