"""The CPU kernel runs on torch's own thread pool.

After every parallel operation torch's threads keep spinning for some milliseconds, waiting for the next one. Separate
threads would compete with them for the cores (a kernel of 4 ms then took 9). So the kernel runs on the same threads,
through the entry point of the OpenMP library that torch is linked with. If that symbol is missing, or in a forked
child, in which OpenMP's threads do not survive, the calling thread does everything.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch

HOME = os.getpid()  # a forked child differs from it


def run_team(function: int, argument: int, threads: int) -> None:
    """Call a function of one pointer once in each thread and wait for all; the calling thread is one of them.

    The team may turn out smaller than asked for, so the function must share out its work itself.
    """
    parallel = _openmp_entry() if threads > 1 and os.getpid() == HOME else None
    if parallel is None:
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(function)(argument)  # ctypes releases the interpreter lock
    else:
        parallel(function, argument, threads, 0)


@cache
def _openmp_entry() -> Callable[[int, int, int, int], None] | None:
    """GOMP_parallel as torch sees it: the symbol is looked up among what torch's library depends on."""
    for library in sorted((Path(torch.__file__).parent / "lib").glob("libtorch_cpu.*")):
        try:
            entry = ctypes.CDLL(str(library)).GOMP_parallel
        except (OSError, AttributeError):
            continue
        entry.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
        entry.restype = None
        return entry
    return None
