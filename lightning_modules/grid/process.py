"""One run of the grid in a process of its own, and what to make of its end; loads nothing heavy."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from lightning_modules.grid import supervised

LOG = "log.txt"  # in the run's folder: all that its processes printed
PROGRESS = "progress.json"
PROGRESS_VARIABLE = "RELEG_PROGRESS_FILE"  # of the environment: where to write progress; without it nothing is written
THREAD_VARIABLES = ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS")  # those of the user win
SECONDS_TO_STOP = 5.0


def start(
    folder: Path, title: str, arguments: Sequence[str], threads: int, keep_open: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    """Start releg fit; the process ends with this one.

    Args:
        folder: of the run.
        title: for the log.
        arguments: of releg fit.
        threads: for torch and numba.
        keep_open: file descriptors that the process inherits: a lock on one is held until the process is gone.
    """
    folder.mkdir(parents=True, exist_ok=True)
    remove_progress(folder)
    environment = {
        **dict.fromkeys(THREAD_VARIABLES, str(threads)),
        "OMP_WAIT_POLICY": "PASSIVE",  # spinning threads slow each other down where others need the cores too
        **os.environ,
        supervised.VARIABLE: str(os.getpid()),
        PROGRESS_VARIABLE: str(folder / PROGRESS),
    }
    with (folder / LOG).open("ab") as log:
        log.write(f"--- {title}, {time.strftime('%Y-%m-%d %H:%M:%S')}\n".encode())
        log.flush()
        return subprocess.Popen(
            [sys.executable, "-m", "lightning_modules.grid.supervised", "fit", *arguments],
            cwd=Path(__file__).parents[2],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C goes to this process, which ends its jobs in order
            pass_fds=keep_open,
        )


def stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End processes in order, or else by force, and wait until they are gone."""
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
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        return how
    if lines and lines[-1].startswith("releg: "):
        return lines[-1].removeprefix("releg: ")
    last = f": {lines[-1]}" if lines and not lines[-1].startswith("---") else ""
    return f"{how}{last} (all it said is in {log})"


def remove_progress(folder: Path) -> None:
    """What a process that is gone said of its progress."""
    (folder / PROGRESS).unlink(missing_ok=True)
