"""The entry to the compiled CPU kernel: a C function of one pointer, so that threads of any kind can call it."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numba import cfunc, types

from releg.kernels.cpu_flips import flip_row
from releg.kernels.cpu_layout import (
    COUNTERS,
    DEPTH,
    ENTROPY,
    FIELDS,
    LAYER_COLUMNS,
    LAYERS,
    LINK_COLUMNS,
    LINKS,
    OUT,
    PHASE,
    ROWS,
    SOURCE_COLUMNS,
    SOURCES,
    SPARE,
    STORE,
    STORE_SIZE,
    WORKERS,
    Layout,
    Scratch,
)
from releg.kernels.cpu_prepare import prepare_maxima, prepare_row, prepare_weights
from releg.kernels.cpu_terms import OPTIONS, inlined
from releg.kernels.simd_memory import matrix_at, take, vector_at

SCRATCH_FIELDS = len(Scratch._fields)


@inlined
def layout_of(block):
    """The tables of offsets, from their addresses."""
    depth = block[DEPTH]
    return Layout(
        matrix_at(block[LINKS], 2 * depth, LINK_COLUMNS, np.int64),
        matrix_at(block[LAYERS], depth, LAYER_COLUMNS, np.int64),
        matrix_at(block[SPARE], block[WORKERS] + 1, 2, np.int64),
    )


@inlined
def scratch_of(field):
    """A worker's arrays, from field[2 i], field[2 i + 1]: address and length of the i-th."""
    return Scratch(
        vector_at(field[0], field[1], np.float64),
        vector_at(field[2], field[3], np.float64),
        vector_at(field[4], field[5], np.float64),
        vector_at(field[6], field[7], np.float64),
        vector_at(field[8], field[9], np.float64),
        vector_at(field[10], field[11], np.int32),
        vector_at(field[12], field[13], np.int32),
        vector_at(field[14], field[15], np.int32),
        vector_at(field[16], field[17], np.int32),
        vector_at(field[18], field[19], np.int32),
        vector_at(field[20], field[21], np.int32),
        vector_at(field[22], field[23], np.int32),
        vector_at(field[24], field[25], np.int64),
        vector_at(field[26], field[27], np.int64),
        vector_at(field[28], field[29], np.int64),
        vector_at(field[30], field[31], np.uint64),
        vector_at(field[32], field[33], np.uint64),
        vector_at(field[34], field[35], np.uint64),
        vector_at(field[36], field[37], np.uint32),
        vector_at(field[38], field[39], np.uint64),
    )


def _compiled(number: Any, version: int) -> Any:
    """The kernel for stores of float32 or float64.

    numba's cache on disk looks at the file of the function alone; a closure over `version` makes it look at all.
    """

    @cfunc(types.void(types.int64), cache=True, **OPTIONS)
    def flip_rows(argument):
        block = vector_at(argument, FIELDS, np.int64)
        counters = vector_at(block[COUNTERS], 2, np.int64)
        worker = take(counters, 1)
        if version == 0 or worker >= block[WORKERS]:
            return
        store = vector_at(block[STORE], block[STORE_SIZE], number)
        out = vector_at(block[OUT], 1, number)
        layout = layout_of(block)
        fields = argument + 8 * (FIELDS + worker * 2 * SCRATCH_FIELDS)
        scratch = scratch_of(vector_at(fields, 2 * SCRATCH_FIELDS, np.int64))
        rows, entropy = block[ROWS], block[ENTROPY] != 0
        sources = matrix_at(block[SOURCES], 2 * block[DEPTH], SOURCE_COLUMNS, np.int64)
        if block[PHASE] == 0:
            prepare_weights(store, layout, sources, counters, entropy)
            return
        prepare_maxima(store, layout.links)
        row = take(counters, 0)
        while row < rows:
            prepare_row(store, layout, sources, row)
            flip_row(store, out, layout, scratch, worker, row, rows, entropy)
            row = take(counters, 0)

    return flip_rows


@cache
def entry_for(dtype: str) -> int:
    """Address of the kernel for `float32` or `float64`, to be called with that of an array of int64, see cpu_layout.

    Phase 0 prepares the weights, phase 1 computes f1 - f0 of every unit, each as far as it gets hold of work.
    """
    files = sorted(file for name in ("cpu_*.py", "simd*.py") for file in Path(__file__).parent.glob(name))
    digest = hashlib.blake2b(b"".join(file.read_bytes() for file in files), digest_size=4).digest()
    return _compiled(np.dtype(dtype).type, 1 + int.from_bytes(digest, "big")).address
