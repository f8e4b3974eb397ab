"""The CPU kernel runs on torch's own thread pool.

After every parallel operation torch's threads keep spinning for some milliseconds, waiting for the next one. Separate
threads would compete with them for the cores (a kernel of 4 ms then took 9). So the kernel runs on the same threads,
through the entry point of the OpenMP library that torch is linked with. If that symbol is missing, or in a forked
child, a thread pool is used instead: OpenMP's threads do not survive a fork.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache
from pathlib import Path

import torch

HOME = os.getpid()  # a forked child differs from it
Team = Callable[[int, int, int], None]  # address of a function of one pointer, the pointer, number of threads


def run_team(function: int, argument: int, threads: int) -> None:
    """Call the function once in each thread and wait for all; the calling thread is one of them.

    The team may turn out smaller than asked for, so the function must share out its work itself.
    """
    if threads == 1:
        _call(function, argument)
    else:
        team = _team() if os.getpid() == HOME else _run_threads
        team(function, argument, threads)


@cache
def _team() -> Team:
    parallel = _openmp_entry()
    if parallel is None:
        return _run_threads
    return lambda function, argument, threads: parallel(function, argument, threads, 0)


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


def _call(function: int, argument: int) -> None:
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(function)(argument)  # ctypes releases the interpreter lock


def _run_threads(function: int, argument: int, threads: int) -> None:
    helpers = [_pool(os.getpid(), threads - 1).submit(_call, function, argument) for _ in range(threads - 1)]
    _call(function, argument)
    for helper in helpers:
        if not helper.cancel():  # one that has not begun would find no work left
            helper.result()


@lru_cache(maxsize=8)
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """One per process: these do not survive a fork either."""
    return ThreadPoolExecutor(threads, thread_name_prefix="releg-cpu")
