"""python -m lightning_modules.grid.supervised ARGUMENTS: the releg command, ending with the process that started it.

However that process ends, kill -9 included: nothing trains on unseen. The check starts before the long imports.
"""

from __future__ import annotations

import os
import runpy
import signal
import threading
import time

VARIABLE = "RELEG_PARENT"  # of the environment: the process to end with
SECONDS_BETWEEN_CHECKS = 0.3


def end_with(parent: int) -> None:
    """Watch the parent from a thread; without it, end at once, as by kill -9, which every run survives."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(SECONDS_BETWEEN_CHECKS)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    end_with(int(os.environ[VARIABLE]))
    runpy.run_module("lightning_modules.cli", run_name="__main__", alter_sys=True)
