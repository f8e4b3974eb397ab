"""The machine, as far as this process may use it."""

from __future__ import annotations

import os


def cores() -> int:
    """How many this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
