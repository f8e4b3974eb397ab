"""How a run's process and the process that started it stay in touch; loads nothing heavy.

The run ends with the process that started it, however that ends, and tells it in a small file how far it is.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import threading
import time
from pathlib import Path
from typing import NamedTuple

PARENT_VARIABLE = "RELEG_PARENT"  # of the environment: the process to end with
PROGRESS_VARIABLE = "RELEG_PROGRESS_FILE"  # of the environment: where to write progress; without it nothing is written
SECONDS_BETWEEN_CHECKS = 0.3
AUTOGROUP = Path("/proc/self/autogroup")


def end_with(parent: int) -> None:
    """Watch the parent from a thread; when it is gone, end at once, as by kill -9, which every run survives."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(SECONDS_BETWEEN_CHECKS)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def yield_as_a_session() -> None:
    """Give this process's session the niceness of the process.

    Linux shares the cores equally between sessions and compares niceness only within one. A run has a session of its
    own, so without this, `nice` on the command that started it would have no effect.
    """
    with contextlib.suppress(OSError):  # another system, or a kernel without such groups
        AUTOGROUP.write_text(str(os.getpriority(os.PRIO_PROCESS, 0)))


class Progress(NamedTuple):
    """How far a run is."""

    step: int
    elbo: float | None  # of the last batch


def write_progress(path: Path, progress: Progress) -> None:
    """Replace the file. If it cannot be written, training continues all the same."""
    elbo = progress.elbo if progress.elbo is not None and math.isfinite(progress.elbo) else None
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    with contextlib.suppress(OSError):
        temporary.write_text(json.dumps({"step": progress.step, "elbo": elbo}))  # it need not survive the machine
        temporary.replace(path)


def read_progress(path: Path) -> Progress | None:
    """What the file says; none if there is no file yet."""
    try:
        return Progress(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None
