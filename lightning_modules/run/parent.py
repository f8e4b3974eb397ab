"""A run's process ends with the process that started it, however that ends; loads nothing heavy."""

from __future__ import annotations

import os
import signal
import threading
import time

PARENT_VARIABLE = "RELEG_PARENT"  # of the environment: the process to end with
SECONDS_BETWEEN_CHECKS = 0.3


def end_with(parent: int) -> None:
    """Watch the parent from a thread; when it is gone, end at once, as by kill -9, which every run survives."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(SECONDS_BETWEEN_CHECKS)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()
