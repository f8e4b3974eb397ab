"""What a Ray worker does for one run of the grid; loads nothing heavy."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from lightning_modules.grid import process as run_process

SECONDS_BETWEEN_LOOKS = 0.2


def make_run(folder: str, title: str, arguments: Sequence[str], threads: int) -> int:
    """Make a run in the process that the local engine would start; answers with its exit code.

    The process ends with the worker. A cancelled task, which Ray interrupts as Ctrl-C would, waits until it is gone.
    """
    os.environ.update(dict.fromkeys(run_process.THREAD_VARIABLES, str(threads)))  # in place of Ray's
    process = run_process.start(Path(folder), title, arguments, threads)
    try:
        while (code := process.poll()) is None:
            time.sleep(SECONDS_BETWEEN_LOOKS)
        return code
    finally:
        run_process.stop([process])
        run_process.remove_progress(Path(folder))
