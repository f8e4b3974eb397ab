"""What the process of a run and the one that started it owe each other; loads nothing heavy.

The run ends with the process that started it, however that ends, and tells it in a small file how far it is.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import NamedTuple

PARENT_VARIABLE = "RELEG_PARENT"  # of the environment: the process to end with
PROGRESS_VARIABLE = "RELEG_PROGRESS_FILE"  # of the environment: where to write progress; without it nothing is written
SECONDS_BETWEEN_CHECKS = 0.3


def end_with(parent: int) -> None:
    """Watch the parent from a thread; when it is gone, end at once, as by kill -9, which every run survives."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(SECONDS_BETWEEN_CHECKS)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


class Progress(NamedTuple):
    """How far a run is."""

    step: int
    elbo: float | None  # of the last batch


def write_progress(path: Path, progress: Progress) -> None:
    """Replace the file. A display that cannot be fed does not stop training."""
    temporary = path.with_name(f".{path.name}.part")
    with contextlib.suppress(OSError):
        temporary.write_text(json.dumps(progress._asdict()))  # not synced: it need not survive the machine
        temporary.replace(path)


def read_progress(path: Path) -> Progress | None:
    """What the file says; none if there is no file yet."""
    try:
        return Progress(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None
