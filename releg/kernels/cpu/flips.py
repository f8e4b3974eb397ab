"""Some rows in the CPU kernel: down through the layers, terms of every node and what follows; then up, adding."""

from __future__ import annotations

import math

import numpy as np

from releg.kernels.cpu.arguments import scratch_of
from releg.kernels.cpu.compile import step
from releg.kernels.cpu.hits import follow_units
from releg.kernels.cpu.layout import (
    MATCH,
    NEXT,
    NEXT_STRIDE,
    OWN,
    OWN_STRIDE,
    ROWS,
    SIGNS,
    SIZE,
    STRIDE,
    TABLE,
    UNITS,
    WIDTH,
)
from releg.kernels.cpu.sets import follow_sets, score_sets
from releg.kernels.cpu.simd import BLOCK
from releg.kernels.cpu.simd_memory import get
from releg.kernels.cpu.terms import multiply_units

CACHE = 1 << 17  # bytes of weights that stay in the second-level cache of a core, with room for all else


@step
def flip_group(store, out, layout, block, worker, first, last, entropy):
    """f1 - f0 of every unit of some rows into out.

    Every step is taken for all rows before the next: what it reads of the weights stays in the cache.
    """
    depth = layout.layers.shape[0]
    for layer in range(depth):
        for row in range(first, last):
            begin_layer(store, layout, block, worker, row - first, row, layer, entropy)
        multiply_layer(store, layout, block, worker, first, last, layer, 2 * layer)
        for row in range(first, last):
            score_sets(store, layout, block, worker, row - first, row, layer)
        if layer + 1 < depth:
            multiply_layer(store, layout, block, worker, first, last, layer, 2 * layer + 1)
            for row in range(first, last):
                follow_units(store, layout, block, worker, row - first, row, layer, entropy)
            for row in range(first, last):
                follow_sets(store, layout, block, worker, row - first, row, layer, entropy)
        for row in range(first, last):
            end_layer(layout, block, worker, row - first, layer)
    for row in range(first, last):
        for layer in range(depth - 1, -1, -1):
            add_up(store, out, layout, block, worker, row - first, row, layer)


@step
def begin_layer(store, layout, block, worker, slot, row, layer, entropy):
    """Logs begin as s * (below @ W + r - z[l+1] @ V), the last where -log q of the next layer is counted as it is."""
    links, layers, scratch = layout.links, layout.layers, scratch_of(block, worker, slot)
    units, table = links[2 * layer, UNITS], layers[layer, TABLE]
    signs = layers[layer, SIGNS] + row * layers[layer, WIDTH]
    match = links[2 * layer, MATCH] + row * units
    deeper = links[2 * layer + 1, MATCH] + row * units
    following = layers[layer, NEXT] + row * layers[layer, NEXT_STRIDE]
    counted = layer + 1 < layers.shape[0] and not entropy
    for i in range(units):
        value = np.float64(store[match + i]) + store[following + i]
        if counted:
            value -= store[deeper + i]
        scratch.linear[table + i] = scratch.logs[i] = value * store[signs + i]
        scratch.products[i] = 1.0
        scratch.follow[table + i] = scratch.linear.size
    if layer == 0:
        scratch.firsts[0] = scratch.firsts[1] = 0


@step
def multiply_layer(store, layout, block, worker, first, last, layer, link):
    """multiply_units of all units for all rows, as many units at a time as stay in the cache."""
    units, width = layout.links[link, UNITS], layout.layers[layer, WIDTH]
    part = max(BLOCK, CACHE // (layout.links[link, STRIDE] * store.itemsize))
    power = 2 * (link % 2) - 1  # of log p below, softplus counts -1; of -log q of the next layer, +1
    for begin in range(0, units, part):
        end = min(begin + part, units)
        for row in range(first, last):
            scratch, signs = scratch_of(block, worker, row - first), layout.layers[layer, SIGNS] + row * width
            multiply_units(store, layout.links, link, row, signs, scratch, power, begin, end)


@step
def end_layer(layout, block, worker, slot, layer):
    """The terms of the layer's units, but for what follows."""
    scratch, table = scratch_of(block, worker, slot), layout.layers[layer, TABLE]
    for i in range(layout.layers[layer, SIZE]):
        scratch.values[table + i] = scratch.logs[i] + math.log(scratch.products[i])


@step
def add_up(store, out, layout, block, worker, slot, row, layer):
    """G of every set and unit of one layer, those of the next being known."""
    scratch, layers, rows = scratch_of(block, worker, slot), layout.layers, block[ROWS]
    values, none = scratch.values, scratch.linear.size
    for node in range(none + 1 + scratch.firsts[layer], none + 1 + scratch.firsts[layer + 1]):
        values[node] += get(values, scratch.follow[node])
    size, table = layers[layer, SIZE], layers[layer, TABLE]
    signs = layers[layer, SIGNS] + row * layers[layer, WIDTH]
    own = layers[layer, OWN] + row * layers[layer, OWN_STRIDE]
    for i in range(size):
        change = values[table + i] + get(values, scratch.follow[table + i])
        values[table + i] = change
        # the flip takes f from f_z to f_(1-z), and log q(z[l] | z[l-1]) by s * a
        out[table * rows + row * size + i] = store[signs + i] * change - store[own + i]
