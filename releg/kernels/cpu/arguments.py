"""What the compiled CPU kernel is called with, taken apart: numbers, and arrays at addresses."""

from __future__ import annotations

import numpy as np

from releg.kernels.cpu.compile import inlined
from releg.kernels.cpu.layout import (
    DEPTH,
    FIELDS,
    LAYER_COLUMNS,
    LAYERS,
    LINK_COLUMNS,
    LINKS,
    SLOTS,
    SPARE,
    WORKERS,
    Layout,
    Scratch,
)
from releg.kernels.cpu.simd_memory import matrix_at, vector_at

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
def scratch_of(block, worker, slot):
    """A worker's arrays for one of the rows it works on: each has two fields, address and length."""
    begin = FIELDS + (worker * block[SLOTS] + slot) * 2 * SCRATCH_FIELDS
    field = block[begin : begin + 2 * SCRATCH_FIELDS]
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
        vector_at(field[24], field[25], np.int32),
        vector_at(field[26], field[27], np.int64),
        vector_at(field[28], field[29], np.int64),
        vector_at(field[30], field[31], np.int64),
        vector_at(field[32], field[33], np.uint64),
        vector_at(field[34], field[35], np.uint64),
        vector_at(field[36], field[37], np.uint64),
        vector_at(field[38], field[39], np.uint32),
        vector_at(field[40], field[41], np.uint64),
    )
