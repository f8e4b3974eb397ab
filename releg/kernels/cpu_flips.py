"""The CPU kernel's outer loops: rows shared out among threads, and for each row its layers, deepest first."""

from __future__ import annotations

import math

from numba import njit

from releg.kernels.cpu_sets import collect, continuation, find_hits, forget
from releg.kernels.cpu_terms import (
    LOGITS,
    MATCH,
    NEXT,
    NEXT_STRIDE,
    OWN,
    OWN_STRIDE,
    PLAIN,
    SIGNS,
    SIZE,
    STRIDE,
    TABLE,
    UNITS,
    WIDTH,
    entropy_units,
    multiply_units,
)
from releg.kernels.simd import take


@njit(nogil=True, cache=True)
def flip_rows(store, out, layout, scratch, worker, counter, rows, entropy):
    """f1 - f0 of every unit for as many rows as this worker gets hold of.

    Args:
        store: (size,) all weights and tables of the path, see cpu_workspace.
        out: (sum of sizes * rows,) one (rows, H) array after the other.
        layout: where things are in the store.
        scratch: this worker's own arrays.
        worker: its number.
        counter: (1,) int64 the next row that nobody has taken.
        rows: number of rows.
        entropy: whether -log q of deeper layers is replaced by their entropies.
    """
    row = take(counter)
    while row < rows:
        for layer in range(layout.layers.shape[0] - 1, -1, -1):
            flip_layer(store, out, layout, scratch, worker, row, rows, layer, entropy)
        forget(scratch)
        row = take(counter)


@njit
def flip_layer(store, out, layout, scratch, worker, row, rows, layer, entropy):
    """G of every single unit of one layer into the table, f1 - f0 into out."""
    links, layers, logs = layout.links, layout.layers, scratch.logs
    size, table = layers[layer, SIZE], layers[layer, TABLE]
    signs = layers[layer, SIGNS] + row * layers[layer, WIDTH]
    logs[:size] = 0.0
    scratch.products[:size] = 1.0
    multiply_units(store, links, 2 * layer, row, signs, scratch, -1)
    linear_terms(store, links, layers, row, layer, signs, logs, entropy)
    if layer + 1 < layers.shape[0]:
        multiply_units(store, links, 2 * layer + 1, row, signs, scratch, 1)
        if entropy:
            entropy_units(store, links, 2 * layer + 1, row, signs, scratch)
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


@njit
def linear_terms(store, links, layers, row, layer, signs, logs, entropy):
    """s * (below @ W + r - z[l+1] @ V), the last where -log q of the next layer is counted as it is."""
    units = links[2 * layer, UNITS]
    match = links[2 * layer, MATCH] + row * units
    above_it = layers[layer, NEXT] + row * layers[layer, NEXT_STRIDE]
    for i in range(units):
        logs[i] += store[signs + i] * (float(store[match + i]) + float(store[above_it + i]))
    if layer + 1 < layers.shape[0] and not entropy:
        match = links[2 * layer + 1, MATCH] + row * units
        for i in range(units):
            logs[i] -= store[signs + i] * float(store[match + i])


@njit
def what_follows(store, layout, scratch, worker, row, layer, i, entropy):
    """The third line of G_l for the flip of one unit."""
    links, layers = layout.links, layout.layers
    sign = store[layers[layer, SIGNS] + row * layers[layer, WIDTH] + i]
    deeper_signs = layers[layer + 1, SIGNS] + row * layers[layer + 1, WIDTH]
    link = 2 * layer + 1
    logits = links[link, LOGITS] + row * links[link, STRIDE]
    delta = links[link, PLAIN] + i * links[link, STRIDE]
    crossed = links[link + 1, PLAIN] + i
    count = collect(scratch, i)
    total = 0.0
    for c in range(count):
        k = scratch.members[c]
        term = sign * float(store[crossed + k * links[link + 1, STRIDE]])
        if not entropy:
            term -= float(store[logits + k]) + sign * float(store[delta + k])
        total += store[deeper_signs + k] * term
    return total + continuation(store, layout, scratch, worker, row, layer + 1, count, entropy)
