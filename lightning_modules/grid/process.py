"""One run of the grid in a process of its own, and what its end means; loads nothing heavy.

`python -m lightning_modules.grid.process ARGUMENTS` is the releg command, but ends with the process that started it, so
that no run trains on unnoticed. The check starts before the long imports.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from lightning_modules import ROOT
from lightning_modules.run.parent import PARENT_VARIABLE, end_with

LOG = "log.txt"  # in the run's folder: all that its processes printed
THREADS_VARIABLE = "OMP_NUM_THREADS"  # torch and all compiled code obey it; the user's own value wins
SECONDS_TO_STOP = 5.0
SECONDS_BETWEEN_CHECKS = 0.2


def threads_asked_for() -> int | None:
    """The number of threads in the user's environment, if there is one."""
    asked = os.environ.get(THREADS_VARIABLE, "")
    return int(asked) if asked.isdecimal() and int(asked) > 0 else None


def start(
    folder: Path,
    title: str,
    arguments: Sequence[str],
    threads: int,
    keep_open: Sequence[int] = (),
    gpu: str | None = None,
) -> subprocess.Popen[bytes]:
    """Start releg fit; the process ends with this one.

    Args:
        folder: of the run.
        title: for the log.
        arguments: of releg fit.
        threads: for torch and compiled code.
        keep_open: file descriptors that the process inherits: a lock on one is held until the process is gone.
        gpu: the only one that the process sees; none: those that this process sees.
    """
    folder.mkdir(parents=True, exist_ok=True)
    environment = {
        THREADS_VARIABLE: str(threads),
        "OMP_WAIT_POLICY": "PASSIVE",  # spinning threads slow each other down where others need the cores too
        **os.environ,
        PARENT_VARIABLE: str(os.getpid()),
        **({} if gpu is None else {"CUDA_VISIBLE_DEVICES": gpu}),
    }
    with (folder / LOG).open("ab") as log:
        log.write(f"--- {title}, {time.strftime('%Y-%m-%d %H:%M:%S')}\n".encode())
        log.flush()
        return subprocess.Popen(
            [sys.executable, "-m", "lightning_modules.grid.process", "fit", *arguments],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C goes to this process, which ends its jobs in order
            pass_fds=keep_open,
        )


def run_to_end(folder: str, title: str, arguments: Sequence[str], threads: int) -> int:
    """What a Ray worker does for one run: start the process, wait, and return its exit code.

    The process ends with the worker. Ray interrupts a cancelled task as Ctrl-C would; it then waits for the process.
    """
    os.environ[THREADS_VARIABLE] = str(threads)  # in place of Ray's
    process = start(Path(folder), title, arguments, threads)
    try:
        while (code := process.poll()) is None:
            time.sleep(SECONDS_BETWEEN_CHECKS)
        return code
    finally:
        stop([process])


def stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Terminate processes, kill those that do not end, and wait until all are gone."""
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + SECONDS_TO_STOP
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def last_words(folder: Path, code: int) -> str:
    """The sentence that the command ended with, or else its exit code and its last line."""
    how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code} and no result"
    log = folder / LOG
    try:
        last_start = log.read_text(errors="replace").rpartition("--- ")[2]
    except OSError:
        return how
    lines = [line.strip() for line in last_start.splitlines()[1:] if line.strip()]
    if sentences := [line.removeprefix("releg: ") for line in lines if line.startswith("releg: ")]:
        return sentences[-1]
    last = f": {lines[-1]}" if lines else ""
    return f"{how}{last} (full log: {log})"


if __name__ == "__main__":
    end_with(int(os.environ[PARENT_VARIABLE]))
    runpy.run_module("lightning_modules.cli", run_name="__main__", alter_sys=True)
