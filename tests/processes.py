"""Processes that a test looks at, and ends."""

import os
import subprocess
import time
from contextlib import suppress
from typing import NamedTuple


class Process(NamedTuple):
    pid: int
    parent: int
    command: str


def find_processes(*words: str) -> list[Process]:
    """Those with all of the words in their command."""
    listed = subprocess.run(["ps", "-A", "-ww", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True)
    fields = (line.split(None, 2) for line in listed.stdout.splitlines())
    found = [Process(int(pid), int(parent), command) for pid, parent, command in fields]
    return [process for process in found if all(word in process.command for word in words)]


def children_of(parent: int) -> list[Process]:
    """Those that it started itself."""
    return [process for process in find_processes() if process.parent == parent]


def is_alive(pid: int) -> bool:
    """A zombie, which only waits for its parent to look, is not."""
    listed = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return bool(listed.strip()) and not listed.strip().startswith("Z")


def end_all(pids: list[int], patience: float) -> int:
    """How many did not end by themselves within some seconds; those are killed."""
    deadline = time.monotonic() + patience
    while any(map(is_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.1)
    left = [pid for pid in pids if is_alive(pid)]
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, 9)
    return len(left)
