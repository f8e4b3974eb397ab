"""Which units of the next layer change when one unit is flipped, and what that alone adds to f."""

from __future__ import annotations

import numpy as np

from releg.kernels.cpu.arguments import scratch_of
from releg.kernels.cpu.compile import inlined, step
from releg.kernels.cpu.layout import (
    ACROSS,
    CROSS,
    LOGITS,
    MARGINS,
    REACH,
    SIGNS,
    SIZE,
    STRIDE,
    TABLE,
    WIDTH,
)
from releg.kernels.cpu.memory import forget, precede
from releg.kernels.cpu.simd import BLOCK, above
from releg.kernels.cpu.simd_memory import get, lowest_bit, put
from releg.kernels.cpu.terms import entropy_units

LINE = 16  # numbers between two lists, so that their beginnings are spread over the cache


@inlined
def list_stride(layout, layer):
    """How far apart the lists of two units are."""
    return layout.layers[layer + 1, WIDTH] + LINE


@step
def follow_units(store, layout, block, worker, slot, row, layer, entropy):
    """For every unit of a layer: the sum of the third line of G_l into logs, and which node follows."""
    scratch = scratch_of(block, worker, slot)
    if entropy:
        signs = layout.layers[layer, SIGNS] + row * layout.layers[layer, WIDTH]
        entropy_units(store, layout.links, 2 * layer + 1, row, signs, layout.spare[-1, 0], scratch)
    forget(scratch, layer + 1)
    for i in range(layout.layers[layer, SIZE]):
        scratch.counts[i] = 0
        scratch.hashes[i] = 0
    find_hits(store, layout, scratch, row, layer, entropy)
    for i in range(layout.layers[layer, SIZE]):
        start, count, mix = i * list_stride(layout, layer), scratch.counts[i], scratch.hashes[i]
        precede(layout, scratch, layout.layers[layer, TABLE] + i, layer + 1, start, count, mix)


@inlined
def find_hits(store, layout, scratch, row, layer, entropy):
    """The units that change into one list per flipped unit, ascending, and the terms of each into logs."""
    layers = layout.layers
    size, width = layers[layer, SIZE], layers[layer, WIDTH]
    signs, across, cross = layers[layer, SIGNS] + row * width, layers[layer, ACROSS], layers[layer, CROSS]
    deeper = row * layers[layer + 1, WIDTH]
    deeper_signs, margins = layers[layer + 1, SIGNS] + deeper, layers[layer + 1, MARGINS] + deeper
    logits = layout.links[2 * layer + 1, LOGITS] + row * layout.links[2 * layer + 1, STRIDE]
    counted = 0.0 if entropy else 1.0
    stride = list_stride(layout, layer)
    for k in range(layers[layer + 1, SIZE]):
        margin = get(store, margins + k)
        if margin >= get(store, layers[layer + 1, REACH] + k):
            continue  # no single weight reaches the threshold
        sign, mark, own = get(store, deeper_signs + k), get(scratch.marks, k), counted * get(store, logits + k)
        for begin in range(0, size, BLOCK):
            mask = above(store, across + k * width + begin, signs + begin, sign, margin)
            while mask != 0:
                i = begin + lowest_bit(mask)
                mask &= mask - np.uint64(1)
                count = np.int64(get(scratch.counts, i))
                put(scratch.found, i * stride + count, k)
                put(scratch.counts, i, count + 1)
                put(scratch.hashes, i, get(scratch.hashes, i) ^ mark)
                moved = get(store, signs + i) * get(store, cross + k * width + i) - own
                put(scratch.logs, i, get(scratch.logs, i) + sign * moved)
