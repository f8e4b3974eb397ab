"""One row in the CPU kernel: down through the layers, terms of every node and which one follows; then up, adding."""

from __future__ import annotations

import math

import numpy as np

from releg.kernels.cpu_hits import follow_units
from releg.kernels.cpu_layout import MATCH, NEXT, NEXT_STRIDE, OWN, OWN_STRIDE, SIGNS, SIZE, TABLE, UNITS, WIDTH
from releg.kernels.cpu_memory import begin_layer
from releg.kernels.cpu_sets import follow_sets, score_sets
from releg.kernels.cpu_terms import entropy_units, inlined, multiply_units
from releg.kernels.simd_memory import get


@inlined
def flip_row(store, out, layout, scratch, worker, row, rows, entropy):
    """f1 - f0 of every unit of one row into out."""
    depth = layout.layers.shape[0]
    for layer in range(depth):
        linear_terms(store, layout.links, layout.layers, scratch, row, layer, entropy)
    scratch.firsts[0] = scratch.firsts[1] = 0
    for layer in range(depth):
        score_layer(store, layout, scratch, worker, row, layer, entropy)
    for layer in range(depth - 1, -1, -1):
        add_up(store, out, layout, scratch, row, rows, layer)


@inlined
def linear_terms(store, links, layers, scratch, row, layer, entropy):
    """s * (below @ W + r - z[l+1] @ V), the last where -log q of the next layer is counted as it is."""
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
        scratch.linear[table + i] = value * store[signs + i]


@inlined
def score_layer(store, layout, scratch, worker, row, layer, entropy):
    """All terms of the units and sets of one layer, and which nodes follow."""
    links, layers = layout.links, layout.layers
    size, table = layers[layer, SIZE], layers[layer, TABLE]
    signs = layers[layer, SIGNS] + row * layers[layer, WIDTH]
    for i in range(size):
        scratch.logs[i], scratch.products[i] = scratch.linear[table + i], 1.0
        scratch.follow[table + i] = scratch.linear.size
    multiply_units(store, links, 2 * layer, row, signs, scratch, -1)
    score_sets(store, layout, scratch, worker, row, layer)
    if layer + 1 < layers.shape[0]:
        multiply_units(store, links, 2 * layer + 1, row, signs, scratch, 1)
        if entropy:
            entropy_units(store, links, 2 * layer + 1, row, signs, layout.spare[-1, 0], scratch)
        begin_layer(scratch, layer + 1)
        follow_units(store, layout, scratch, row, layer, entropy)
        follow_sets(store, layout, scratch, worker, row, layer, entropy)
    for i in range(size):
        scratch.values[table + i] = scratch.logs[i] + math.log(scratch.products[i])


@inlined
def add_up(store, out, layout, scratch, row, rows, layer):
    """G of every set and unit of one layer, those of the next being known."""
    layers, values, none = layout.layers, scratch.values, scratch.linear.size
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
