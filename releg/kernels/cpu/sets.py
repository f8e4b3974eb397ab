"""All sets of changed units of one layer: their own terms of G, then the sets that follow in the next layer.

Flipping a set C of units of layer l, everything above it left as it is, changes f by G_l(C), less the change of
log q(z[l] | z[l-1]). With s = +1 for a unit that is 0 and -1 for one that is 1, and d = sum over C of s * weights:

    G_l(C) = sum s * (below @ W + r)   - sum_j log(sigmoid(-r_j) + sigmoid(r_j) exp(d_j))     log p, r its logits
           - sum s * (z[l+1] @ V)      + sum_k log(sigmoid(-a_k) + sigmoid(a_k) exp(d_k))     -log q(z[l+1] | z[l])
           + sum over changed k of s_k * [sum over C of s * (W_ik - V_ki) - a_k] + G_(l+1)(changed k)

With entropies the second line is their change, and the third has neither V nor a. All sets of a layer are done before
any of the next, one link after the other: the weights of one link fit into the cache, those of all do not.
"""

from __future__ import annotations

import numpy as np

from releg.kernels.cpu.arguments import scratch_of
from releg.kernels.cpu.compile import inlined, step
from releg.kernels.cpu.layout import CROSS, LOGITS, SIGNS, STRIDE, TABLE, WIDTH
from releg.kernels.cpu.memory import precede
from releg.kernels.cpu.set_terms import generative_change, inference_change
from releg.kernels.cpu.simd_memory import get, lowest_bit, put


@step
def score_sets(store, layout, block, worker, slot, row, layer):
    """Linear terms and the softplus changes of the layer below, for every set of a layer."""
    scratch = scratch_of(block, worker, slot)
    signs = layout.layers[layer, SIGNS] + row * layout.layers[layer, WIDTH]
    table, none = layout.layers[layer, TABLE], scratch.linear.size
    for number in range(scratch.firsts[layer], scratch.firsts[layer + 1]):
        start, count = np.int64(get(scratch.starts, number)), np.int64(get(scratch.sizes, number))
        value = 0.0
        for c in range(start, start + count):
            value += get(scratch.linear, table + get(scratch.members, c))
        value -= generative_change(store, layout, scratch, worker, row, 2 * layer, signs, start, count)
        put(scratch.values, none + 1 + number, value)
        put(scratch.follow, none + 1 + number, none)


@step
def follow_sets(store, layout, block, worker, slot, row, layer, entropy):
    """The terms of the next layer, and which node follows, for every set of a layer."""
    layers, scratch = layout.layers, scratch_of(block, worker, slot)
    signs = layers[layer, SIGNS] + row * layers[layer, WIDTH]
    none = scratch.linear.size
    for number in range(scratch.firsts[layer], scratch.firsts[layer + 1]):
        start, count = np.int64(get(scratch.starts, number)), np.int64(get(scratch.sizes, number))
        value = get(scratch.values, none + 1 + number)
        value += inference_change(store, layout, scratch, worker, row, layer, signs, start, count, entropy)
        more, changed, mix = changed_units(store, layout, scratch, row, layer, signs, start, count, entropy)
        put(scratch.values, none + 1 + number, value + more)
        precede(layout, scratch, none + 1 + number, layer + 1, 0, changed, mix)


@inlined
def changed_units(store, layout, scratch, row, layer, signs, start, count, entropy):
    """Units named by the masks into found; the third line of G_l, their number and their hash."""
    links, layers = layout.links, layout.layers
    deeper_signs = layers[layer + 1, SIGNS] + row * layers[layer + 1, WIDTH]
    logits = links[2 * layer + 1, LOGITS] + row * links[2 * layer + 1, STRIDE]
    counted = 0.0 if entropy else 1.0
    total, changed, mix = 0.0, 0, np.uint64(0)
    for c in range(count):
        i = np.int64(get(scratch.members, start + c))
        put(scratch.places, c, i)
        put(scratch.spins, c, get(store, signs + i))
    for c in range(count, count + 3):  # fills up the last group of four
        put(scratch.places, c, 0)
        put(scratch.spins, c, 0.0)
    for word in range((links[2 * layer + 1, STRIDE] + 63) // 64):
        mask = get(scratch.words, word)
        while mask != 0:
            k = word * 64 + lowest_bit(mask)
            mask &= mask - np.uint64(1)
            put(scratch.found, changed, k)
            changed += 1
            mix ^= get(scratch.marks, k)
            moved = crossing(store, scratch, layers[layer, CROSS] + k * layers[layer, WIDTH], count)
            total += get(store, deeper_signs + k) * (moved - counted * get(store, logits + k))
    return total, changed, mix


@inlined
def crossing(store, scratch, cross, count):
    """Sum over the members of s * (W_ik - V_ki), four at once: a loop that ends soon is a branch mispredicted."""
    places, spins = scratch.places, scratch.spins
    moved = 0.0
    for c in range(0, count, 4):
        left = get(spins, c) * get(store, cross + get(places, c))
        left += get(spins, c + 1) * get(store, cross + get(places, c + 1))
        right = get(spins, c + 2) * get(store, cross + get(places, c + 2))
        right += get(spins, c + 3) * get(store, cross + get(places, c + 3))
        moved += left + right
    return moved
