"""The entry to the compiled CPU kernel: a C function of one pointer, so that threads of any kind can call it."""

from __future__ import annotations

import hashlib
import logging
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np
from numba import cfunc, types
from numba.core.caching import FunctionCache
from numba.core.errors import NumbaError

from releg.kernels.cpu.layout import CALL, SCRATCH
from releg.kernels.cpu.tables import prepare_maxima, prepare_weights
from releg.kernels.cpu.vector import OPTIONS, at, record_at, take
from releg.kernels.cpu.walk import flip_group

SIGNATURE = types.void(types.int64)

logger = logging.getLogger("releg")


def _kernel(number, version):
    """The kernel for float32 or float64, not compiled.

    numba's cache on disk checks only this file for changes; a closure over `version` makes it depend on all of them.
    """

    def flip_rows(address):
        call = record_at(CALL, address, 0)
        counters = at(np.int64, call.counters, 0)
        worker = take(counters, 1)
        if version == 0 or worker >= call.workers:
            return
        if call.phase == 0:
            prepare_weights(number, call, record_at(SCRATCH, call.scratch, worker))
            return
        prepare_maxima(number, call)
        first = take(counters, 0) * call.in_hand
        while first < call.rows:
            flip_group(number, call, worker, first, min(first + call.in_hand, call.rows))
            first = take(counters, 0) * call.in_hand

    return flip_rows


@cache
def entry_for(dtype: str) -> int:
    """Address of the kernel for `float32` or `float64`, to be called with that of a CALL record, see layout.

    Compiling it takes about 20 s, once per machine.

    Phase 0 prepares the weights, phase 1 computes f1 - f0 of every unit, each until no work is left.
    """
    files = sorted(Path(__file__).parent.glob("*.py"))
    digest = hashlib.blake2b(b"".join(file.read_bytes() for file in files), digest_size=4).digest()
    return _compiled(_kernel(np.dtype(dtype).type, 1 + int.from_bytes(digest, "big"))).address


def _compiled(kernel):
    """The kernel from numba's cache on disk, or compiled; what is there but cannot be used is deleted."""
    try:
        return cfunc(SIGNATURE, cache=True, **OPTIONS)(kernel)
    except NumbaError:
        raise
    except Exception as error:  # a damaged file raises anything; a folder that cannot be written to, a RuntimeError
        logger.warning("compiled code on disk cannot be used (%s); compiling again", error)
    with suppress(RuntimeError, OSError):
        FunctionCache(kernel).flush()
    return cfunc(SIGNATURE, **OPTIONS)(kernel)
