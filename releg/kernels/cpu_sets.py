"""Sets of changed units: found by their thresholds, continued to the deepest layer, remembered per row.

Flipping a set C of units of layer l, everything above it left as it is, changes f by G_l(C), less the change of
log q(z[l] | z[l-1]). With s = +1 for a unit that is 0 and -1 for one that is 1, and d = sum over C of s * weights:

    G_l(C) = sum s * (below @ W + r)   - sum_j log(sigmoid(-r_j) + sigmoid(r_j) exp(d_j))     log p, r its logits
           - sum s * (z[l+1] @ V)      + sum_k log(sigmoid(-a_k) + sigmoid(a_k) exp(d_k))     -log q(z[l+1] | z[l])
           + sum over changed k of s_k * [sum over C of s * (W_ik - V_ki) - a_k] + G_(l+1)(changed k)

G of a single unit is a look-up, since layers are done deepest first. With entropies the second line is their change,
and the third has neither V nor a.
"""

from __future__ import annotations

import math

import numpy as np

from releg.kernels.cpu_layout import (
    ACROSS,
    CROSS,
    INVERSE,
    LOGITS,
    MARGINS,
    MOVE,
    RATIO,
    REACH,
    SIGNS,
    SIZE,
    STAY,
    STRIDE,
    TABLE,
    TARGETS,
    THRESHOLDS,
    WIDTH,
)
from releg.kernels.cpu_terms import (
    blocks_within_range,
    entropy_change,
    four_rows,
    inlined,
    set_delta,
    set_logarithm,
    softplus_change,
)
from releg.kernels.simd import BLOCK, above, above_each
from releg.kernels.simd_memory import get, lowest_bit
from releg.kernels.simd_sets import set_logit_means, set_product_and_changes

MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2**64 / golden ratio: spreads a set's members over the bits of its hash


@inlined
def find_hits(store, layout, scratch, row, layer):
    """Which units of the next layer change when a unit of this one is flipped: a list per unit, ascending."""
    layers = layout.layers
    size, width = layers[layer, SIZE], layers[layer, WIDTH]
    signs, across = layers[layer, SIGNS] + row * width, layers[layer, ACROSS]
    deeper = row * layers[layer + 1, WIDTH]
    deeper_signs, margins = layers[layer + 1, SIGNS] + deeper, layers[layer + 1, MARGINS] + deeper
    for i in range(size):
        scratch.first[i] = -1
    hits = 0
    for k in range(layers[layer + 1, SIZE] - 1, -1, -1):  # downwards, since each list grows at its head
        margin = store[margins + k]
        if margin >= store[layers[layer + 1, REACH] + k]:
            continue  # no single weight reaches the threshold
        for begin in range(0, size, BLOCK):
            mask = above(store, across + k * width + begin, signs + begin, store[deeper_signs + k], margin)
            while mask != 0:
                i = begin + lowest_bit(mask)
                mask &= mask - np.uint64(1)
                scratch.hit_unit[hits] = k
                scratch.hit_next[hits] = scratch.first[i]
                scratch.first[i] = hits
                hits += 1


@inlined
def mixed(mix, k):
    """The hash of a set after one more member."""
    return (mix ^ np.uint64(k + 1)) * MULTIPLIER


@inlined
def add_member(store, layout, scratch, signs, layer, start, count, k):
    """Append unit k of a layer to the set that begins at arena[start]; the linear terms of its G."""
    links, stride, deeper_stride = layout.links, layout.links[2 * layer, STRIDE], layout.links[2 * layer + 1, STRIDE]
    scratch.arena[start + count] = k
    column = RATIO if get(store, signs + k) > 0 else INVERSE
    scratch.rows[0, count] = links[2 * layer, column] + k * stride
    scratch.rows[1, count] = links[2 * layer + 1, column] + k * deeper_stride
    return get(scratch.linear, layout.layers[layer, TABLE] + k)


@inlined
def what_follows(store, layout, scratch, worker, row, layer, i, entropy):
    """The third line of G_l for the flip of one unit that changes others."""
    layers = layout.layers
    sign = get(store, layers[layer, SIGNS] + row * layers[layer, WIDTH] + i)
    deeper_signs = layers[layer + 1, SIGNS] + row * layers[layer + 1, WIDTH]
    logits = layout.links[2 * layer + 1, LOGITS] + row * layout.links[2 * layer + 1, STRIDE]
    cross, width = layers[layer, CROSS] + i, layers[layer, WIDTH]
    counted = 0.0 if entropy else 1.0
    total, linear, mix, start, count = 0.0, 0.0, np.uint64(layer + 1), scratch.used[1], 0
    hit = np.int64(scratch.first[i])
    while hit >= 0:
        k = np.int64(get(scratch.hit_unit, hit))
        hit = np.int64(get(scratch.hit_next, hit))
        linear += add_member(store, layout, scratch, deeper_signs, layer + 1, start, count, k)
        count += 1
        mix = mixed(mix, k)
        moved = sign * get(store, cross + k * width) - counted * get(store, logits + k)
        total += get(store, deeper_signs + k) * moved
    if count == 1:
        return total + scratch.table[layers[layer + 1, TABLE] + scratch.arena[start]]
    return total + continuation(store, layout, scratch, worker, row, layer + 1, start, count, mix, linear, entropy)


@inlined
def continuation(store, layout, scratch, worker, row, layer, start, count, mix, linear, entropy):
    """G_layer of the set arena[start : start + count], from memory or evaluated to where it ends."""
    links, layers, arena = layout.links, layout.layers, scratch.arena
    counted = 0.0 if entropy else 1.0
    total, level = 0.0, 0
    while True:
        entry, known = remember(scratch, layer, start, count, mix)
        if known:
            total += scratch.values[entry]
            break
        scratch.pending[level], scratch.before[level] = entry, total
        level += 1
        signs = layers[layer, SIGNS] + row * layers[layer, WIDTH]
        total += linear - generative_change(store, layout, scratch, worker, row, 2 * layer, signs, start, count)
        if layer + 1 == layers.shape[0]:
            break
        total += inference_change(store, layout, scratch, worker, row, layer, signs, start, count, entropy)
        deeper_signs = layers[layer + 1, SIGNS] + row * layers[layer + 1, WIDTH]
        logits = links[2 * layer + 1, LOGITS] + row * links[2 * layer + 1, STRIDE]
        changed, deeper, mix, linear = 0, start + count, np.uint64(layer + 1), 0.0
        for word in range((links[2 * layer + 1, STRIDE] + 63) // 64):
            mask = get(scratch.words, word)
            while mask != 0:
                k = word * 64 + lowest_bit(mask)
                mask &= mask - np.uint64(1)
                linear += add_member(store, layout, scratch, deeper_signs, layer + 1, deeper, changed, k)
                changed += 1
                mix = mixed(mix, k)
                cross = layers[layer, CROSS] + k * layers[layer, WIDTH]
                moved = -counted * get(store, logits + k)
                for c in range(start, start + count):
                    i = np.int64(get(arena, c))
                    moved += get(store, signs + i) * get(store, cross + i)
                total += get(store, deeper_signs + k) * moved
        if changed < 2:
            if changed == 1:
                total += scratch.table[layers[layer + 1, TABLE] + arena[deeper]]
            break
        layer, start, count = layer + 1, deeper, changed
    for done in range(level):
        if scratch.pending[done] >= 0:
            scratch.values[scratch.pending[done]] = total - scratch.before[done]
    return total


@inlined
def generative_change(store, layout, scratch, worker, row, link, signs, start, count):
    """The softplus changes of the layer below."""
    links, members = layout.links, scratch.arena
    partial, ones = layout.spare[worker, 0], layout.spare[-1, 0]
    chunk = blocks_within_range(store, links, link, members, start, count)
    if chunk > 0:
        rows = four_rows(store, links, link, scratch.rows, 0, count, partial, ones)
        return set_logarithm(store, links, link, row, rows, chunk)
    set_delta(store, links, link, signs, members, start, count, partial)
    logits = links[link, LOGITS] + row * links[link, STRIDE]
    return softplus_change(store, logits, partial, 1.0, links[link, TARGETS])


@inlined
def inference_change(store, layout, scratch, worker, row, layer, signs, start, count, entropy):
    """Softplus changes of the next layer, or changes of its entropies; which of its units change, into masks."""
    links, layers, members, link = layout.links, layout.layers, scratch.arena, 2 * layer + 1
    partial, delta, ones = layout.spare[worker, 0], layout.spare[worker, 1], layout.spare[-1, 0]
    stride = links[link, STRIDE]
    blocks = stride // BLOCK
    stay, move = links[link, STAY] + row * stride, links[link, MOVE] + row * stride
    deeper = row * layers[layer + 1, WIDTH]
    deeper_signs, thresholds = layers[layer + 1, SIGNS] + deeper, layers[layer + 1, THRESHOLDS] + deeper
    logits = links[link, LOGITS] + row * stride
    scratch.masks[blocks] = 0  # the other half of the last word
    if blocks_within_range(store, links, link, members, start, count) >= blocks:
        rows = four_rows(store, links, link, scratch.rows, 1, count, partial, ones)
        change = math.log(set_product_and_changes(store, stay, move, rows, blocks, thresholds, scratch.masks))
        if entropy:
            set_delta(store, links, link, signs, members, start, count, delta)
            change += set_logit_means(store, stay, move, (ones, ones, ones, ones), blocks, logits, logits, 0)
            change -= set_logit_means(store, stay, move, rows, blocks, logits, delta, 1)
        return change
    set_delta(store, links, link, signs, members, start, count, delta)
    for block in range(blocks):
        at, margins = block * BLOCK, layers[layer + 1, MARGINS] + deeper
        scratch.masks[block] = above_each(store, delta + at, deeper_signs + at, margins + at)
    if entropy:
        return entropy_change(store, logits, delta, 1.0, links[link, TARGETS])
    return softplus_change(store, logits, delta, 1.0, links[link, TARGETS])


@inlined
def remember(scratch, layer, start, count, mix):
    """The entry of a set and whether it has a value; a new one if there was none, -1 if memory is full."""
    slots, entries, arena, used = scratch.slots, scratch.entries, scratch.arena, scratch.used
    slot = np.int64(mix >> np.uint64(33)) & (slots.size - 1)
    entry, known = np.int64(-1), False
    while slots[slot] >= 0 and not known:
        entry = np.int64(slots[slot])
        known = entries[entry, 0] == layer and entries[entry, 2] == count
        same = 0
        while known and same < count:
            known = arena[entries[entry, 1] + same] == arena[start + same]
            same += 1
        slot = (slot + 1) & (slots.size - 1)
    if not known:
        entry = np.int64(-1)
        # behind the remembered sets there must be room for those under evaluation
        if (
            used[0] < entries.shape[0]
            and start == used[1]
            and start + count + scratch.pending.size * scratch.first.size <= arena.size
        ):
            entry = used[0]
            slots[slot] = entry
            entries[entry, 0], entries[entry, 1], entries[entry, 2], entries[entry, 3] = layer, start, count, slot
            used[0] += 1
            used[1] += count
    return entry, known


@inlined
def forget(scratch):
    """Empty the memory: its sets belong to one row."""
    for entry in range(scratch.used[0]):
        scratch.slots[scratch.entries[entry, 3]] = -1
    scratch.used[0] = scratch.used[1] = 0
