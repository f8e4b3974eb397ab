"""Locks: one reproduce.sh at a time per results folder, one process at a time per run."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

SECONDS_TO_WAIT = 4.0  # the jobs of a process that was just killed end, and give up the lock, within a second


def locked(results: Path) -> AbstractContextManager[int]:
    """Hold the lock on all results. Yields the file descriptor that holds it.

    BlockingIOError, with a sentence, if another process has it.
    """
    return _held(results / "runs" / ".lock", "reproduce.sh", results, SECONDS_TO_WAIT)


def locked_run(folder: Path, wait: float = SECONDS_TO_WAIT) -> AbstractContextManager[int]:
    """Hold the lock on one run, also on a shared file system; BlockingIOError if another process has it."""
    return _held(folder / ".lock", "releg fit", folder, wait)


@contextmanager
def _held(path: Path, who: str, where: Path, wait: float) -> Iterator[int]:
    """Hold a lock. The system releases it however the process ends. Nothing is written: the file may be a link."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        deadline = time.monotonic() + wait
        while not _try(file.fileno()):
            if time.monotonic() > deadline:
                raise BlockingIOError(
                    f"another {who} is working in {where}, expected none; wait for it to end, or stop it (on its "
                    f"machine, `fuser {path}` names it)"
                )
            time.sleep(0.1)
        yield file.fileno()


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
