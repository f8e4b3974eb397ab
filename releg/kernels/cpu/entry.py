"""The entry to the compiled CPU kernel: a C function of one pointer, so that threads of any kind can call it."""

from __future__ import annotations

import hashlib
import logging
import os
import stat
from functools import cache
from pathlib import Path

import numpy as np
from numba import cfunc, types
from numba.core.caching import FunctionCache
from numba.core.errors import NumbaError

from releg.kernels.cpu.layout import CALL
from releg.kernels.cpu.tables import prepare_maxima, prepare_weights
from releg.kernels.cpu.vector import OPTIONS, at, record_at, take
from releg.kernels.cpu.walk import flip_group

SIGNATURE = types.void(types.int64)

logger = logging.getLogger("releg")


def compile_kept(function):
    """The C function that numba makes of it; its code is kept on disk for the next process.

    Files that cannot be read are replaced. Nothing is kept where others could put code of their own in its place.
    """
    try:
        kept = FunctionCache(function)
    except RuntimeError:  # there is no folder to write to
        return cfunc(SIGNATURE, **OPTIONS)(function)
    if not is_private(Path(kept.cache_path)):
        logger.warning("compiled code is not kept, since other users can write to %s", kept.cache_path)
        return cfunc(SIGNATURE, **OPTIONS)(function)
    compile_or_load = cfunc(SIGNATURE, cache=True, **OPTIONS)
    try:
        return compile_or_load(function)
    except NumbaError:
        raise
    except Exception as error:  # whatever a damaged file leads to: EOFError, UnpicklingError, ValueError, ...
        logger.warning("compiled code in %s is damaged (%s); compiling it again", kept.cache_path, type(error).__name__)
        kept.flush()
        return compile_or_load(function)


def is_private(folder: Path) -> bool:
    """Whether only those can write to the folder whose code runs anyway: this user, root, the owner of this file."""
    if not hasattr(os, "getuid"):
        return True
    status = folder.stat()
    trusted = {os.getuid(), 0, Path(__file__).stat().st_uid}
    return status.st_uid in trusted and not status.st_mode & stat.S_IWOTH


def _compiled(number, version):
    """The kernel for float32 or float64.

    numba's cache on disk looks at the file of the function alone; a closure over `version` makes it look at all.
    """

    def flip_rows(address):
        call = record_at(CALL, address, 0)
        counters = at(np.int64, call.counters, 0)
        worker = take(counters, 1)
        if version == 0 or worker >= call.workers:
            return
        if call.phase == 0:
            prepare_weights(number, call)
            return
        prepare_maxima(number, call)
        first = take(counters, 0) * call.in_hand
        while first < call.rows:
            flip_group(number, call, worker, first, min(first + call.in_hand, call.rows))
            first = take(counters, 0) * call.in_hand

    return compile_kept(flip_rows)


@cache
def entry_for(dtype: str) -> int:
    """Address of the kernel for `float32` or `float64`, to be called with that of a CALL record, see layout.

    Phase 0 prepares the weights, phase 1 computes f1 - f0 of every unit, each as far as it gets hold of work.
    """
    files = sorted(Path(__file__).parent.glob("*.py"))
    digest = hashlib.blake2b(b"".join(file.read_bytes() for file in files), digest_size=4).digest()
    return _compiled(np.dtype(dtype).type, 1 + int.from_bytes(digest, "big")).address
