"""One layer of one row in the CPU kernel: direct terms of all its units, then what follows from changed units."""

from __future__ import annotations

import math

import numpy as np

from releg.kernels.cpu_layout import MATCH, NEXT, NEXT_STRIDE, OWN, OWN_STRIDE, SIGNS, SIZE, TABLE, UNITS, WIDTH
from releg.kernels.cpu_sets import find_hits, what_follows
from releg.kernels.cpu_terms import entropy_units, inlined, multiply_units


@inlined
def flip_layer(store, out, layout, scratch, worker, row, rows, layer, entropy):
    """G of every single unit of one layer into the table, f1 - f0 into out."""
    links, layers, logs = layout.links, layout.layers, scratch.logs
    size, table = layers[layer, SIZE], layers[layer, TABLE]
    signs = layers[layer, SIGNS] + row * layers[layer, WIDTH]
    linear_terms(store, links, layers, scratch, row, layer, signs, entropy)
    multiply_units(store, links, 2 * layer, row, signs, scratch, -1)
    if layer + 1 < layers.shape[0]:
        multiply_units(store, links, 2 * layer + 1, row, signs, scratch, 1)
        if entropy:
            entropy_units(store, links, 2 * layer + 1, row, signs, layout.spare[-1, 0], scratch)
        find_hits(store, layout, scratch, row, layer)
        for i in range(size):
            if scratch.first[i] >= 0:
                logs[i] += what_follows(store, layout, scratch, worker, row, layer, i, entropy)
    own = layers[layer, OWN] + row * layers[layer, OWN_STRIDE]
    for i in range(size):
        change = logs[i] + math.log(scratch.products[i])
        scratch.table[table + i] = change
        # the flip takes f from f_z to f_(1-z), and log q(z[l] | z[l-1]) by s * a
        out[table * rows + row * size + i] = store[signs + i] * change - store[own + i]


@inlined
def linear_terms(store, links, layers, scratch, row, layer, signs, entropy):
    """s * (below @ W + r - z[l+1] @ V), the last where -log q of the next layer is counted as it is; logs begin so."""
    units, table = links[2 * layer, UNITS], layers[layer, TABLE]
    match = links[2 * layer, MATCH] + row * units
    deeper = links[2 * layer + 1, MATCH] + row * units
    following = layers[layer, NEXT] + row * layers[layer, NEXT_STRIDE]
    counted = layer + 1 < layers.shape[0] and not entropy
    for i in range(units):
        value = np.float64(store[match + i]) + store[following + i]
        if counted:
            value -= store[deeper + i]
        value *= store[signs + i]
        scratch.linear[table + i] = scratch.logs[i] = value
        scratch.products[i] = 1.0
