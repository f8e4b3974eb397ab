"""The CPU kernel's outer loops: rows shared out among threads, and for each row its layers, deepest first."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path

import numpy as np
from numba import njit
from numba.core.dispatcher import Dispatcher

from releg.kernels import simd
from releg.kernels.cpu_layout import MATCH, NEXT, NEXT_STRIDE, OWN, OWN_STRIDE, SIGNS, SIZE, TABLE, UNITS, WIDTH
from releg.kernels.cpu_sets import find_hits, forget, what_follows
from releg.kernels.cpu_terms import OPTIONS, entropy_units, inlined, multiply_units
from releg.kernels.simd import take


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


def _compiled(sources: str) -> Dispatcher:
    """The entry to the kernel. numba's cache on disk looks at one file only; `sources` makes it look at all of them."""

    @njit(nogil=True, cache=True, **OPTIONS)
    def flip_rows(store, out, layout, scratch, worker, counter, rows, entropy):
        assert sources
        row = take(counter)
        while row < rows:
            for layer in range(layout.layers.shape[0] - 1, -1, -1):
                flip_layer(store, out, layout, scratch, worker, row, rows, layer, entropy)
            forget(scratch)
            row = take(counter)

    return flip_rows


def _digest() -> str:
    files = [*sorted(Path(__file__).parent.glob("cpu_*.py")), Path(simd.__file__)]
    return hashlib.blake2b(b"".join(file.read_bytes() for file in files), digest_size=8).hexdigest()


flip_rows = _compiled(_digest())
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
