"""The entry to the compiled CPU kernel: a C function of one pointer, so that threads of any kind can call it."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numba import cfunc, types

from releg.kernels.cpu.arguments import SCRATCH_FIELDS, layout_of
from releg.kernels.cpu.compile import OPTIONS
from releg.kernels.cpu.flips import flip_group
from releg.kernels.cpu.layout import (
    COUNTERS,
    DEPTH,
    ENTROPY,
    FIELDS,
    OUT,
    PHASE,
    ROWS,
    SLOTS,
    SOURCE_COLUMNS,
    SOURCES,
    STORE,
    STORE_SIZE,
    WORKERS,
)
from releg.kernels.cpu.prepare import prepare_maxima, prepare_row, prepare_weights
from releg.kernels.cpu.simd_memory import matrix_at, take, vector_at


def _compiled(number: Any, version: int) -> Any:
    """The kernel for stores of float32 or float64.

    numba's cache on disk looks at the file of the function alone; a closure over `version` makes it look at all.
    """

    @cfunc(types.void(types.int64), cache=True, **OPTIONS)
    def flip_rows(argument):
        workers, slots = vector_at(argument, FIELDS, np.int64)[WORKERS], vector_at(argument, FIELDS, np.int64)[SLOTS]
        block = vector_at(argument, FIELDS + workers * slots * 2 * SCRATCH_FIELDS, np.int64)
        counters = vector_at(block[COUNTERS], 2, np.int64)
        worker = take(counters, 1)
        if version == 0 or worker >= workers:
            return
        store = vector_at(block[STORE], block[STORE_SIZE], number)
        out = vector_at(block[OUT], 1, number)
        layout = layout_of(block)
        rows, entropy = block[ROWS], block[ENTROPY] != 0
        sources = matrix_at(block[SOURCES], 2 * block[DEPTH], SOURCE_COLUMNS, np.int64)
        if block[PHASE] == 0:
            prepare_weights(store, layout, sources, counters, entropy)
            return
        prepare_maxima(store, layout.links)
        first = take(counters, 0) * slots
        while first < rows:
            last = min(first + slots, rows)
            for row in range(first, last):
                prepare_row(store, layout, sources, row)
            flip_group(store, out, layout, block, worker, first, last, entropy)
            first = take(counters, 0) * slots

    return flip_rows


@cache
def entry_for(dtype: str) -> int:
    """Address of the kernel for `float32` or `float64`, to be called with that of an array of int64, see layout.

    Phase 0 prepares the weights, phase 1 computes f1 - f0 of every unit, each as far as it gets hold of work.
    """
    files = sorted(Path(__file__).parent.glob("*.py"))
    digest = hashlib.blake2b(b"".join(file.read_bytes() for file in files), digest_size=4).digest()
    return _compiled(np.dtype(dtype).type, 1 + int.from_bytes(digest, "big")).address
