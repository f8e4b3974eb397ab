"""Sets of changed units: found by their thresholds, continued to the deepest layer, remembered per row."""

from __future__ import annotations

import numpy as np
from numba import njit

from releg.kernels.cpu_terms import (
    ACROSS,
    LOGITS,
    MARGINS,
    PLAIN,
    REACH,
    SIGNS,
    SIZE,
    STRIDE,
    TABLE,
    WIDTH,
    generative_change,
    inference_change,
)
from releg.kernels.simd import BLOCK, above, above_each, lowest_bit

MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2**64 / golden ratio: spreads a set's members over the bits of its hash


@njit
def find_hits(store, layout, scratch, row, layer):
    """Which units of the next layer change when a unit of this one is flipped: a list per unit, ascending."""
    layers = layout.layers
    size, width = layers[layer, SIZE], layers[layer, WIDTH]
    signs, across = layers[layer, SIGNS] + row * width, layers[layer, ACROSS]
    deeper_signs = layers[layer + 1, SIGNS] + row * layers[layer + 1, WIDTH]
    margins = layers[layer + 1, MARGINS] + row * layers[layer + 1, WIDTH]
    scratch.first[:size] = -1
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


@njit
def collect(scratch, i):
    """The changed units that follow from the flip of unit i, into members."""
    count = 0
    hit = scratch.first[i]
    while hit >= 0:
        scratch.members[count] = scratch.hit_unit[hit]
        count += 1
        hit = scratch.hit_next[hit]
    return count


@njit
def continuation(store, layout, scratch, worker, row, layer, count, entropy):
    """G_layer of the set in members, from the table, from memory, or evaluated down to where it ends."""
    links, layers = layout.links, layout.layers
    members, deeper = scratch.members, scratch.deeper
    delta = layout.scratch[worker, 2]
    total, level = 0.0, 0
    while True:
        if count == 1:
            total += scratch.table[layers[layer, TABLE] + members[0]]
            break
        entry, known = remember(scratch, layer, count)
        if known:
            total += scratch.values[entry]
            break
        scratch.pending[level], scratch.before[level] = entry, total
        level += 1
        total += generative_change(store, layout, worker, row, layer, members, count)
        if layer + 1 == layers.shape[0]:
            break
        total += inference_change(store, layout, worker, row, layer, members, count, entropy)
        changed = find_deeper(store, layers, scratch, row, layer + 1, delta)
        if changed == 0:
            break
        signs = layers[layer, SIGNS] + row * layers[layer, WIDTH]
        deeper_signs = layers[layer + 1, SIGNS] + row * layers[layer + 1, WIDTH]
        logits = links[2 * layer + 1, LOGITS] + row * links[2 * layer + 1, STRIDE]
        for c in range(changed):
            k = deeper[c]
            crossed = 0.0
            if not entropy:
                crossed -= float(store[logits + k]) + float(store[delta + k])
            plain = links[2 * layer + 2, PLAIN] + k * links[2 * layer + 2, STRIDE]
            for m in range(count):
                crossed += store[signs + members[m]] * store[plain + members[m]]
            total += store[deeper_signs + k] * crossed
        for c in range(changed):
            members[c] = deeper[c]
        layer, count = layer + 1, changed
    for done in range(level):
        if scratch.pending[done] >= 0:
            scratch.values[scratch.pending[done]] = total - scratch.before[done]
    return total


@njit
def find_deeper(store, layers, scratch, row, layer, delta):
    """The units of a layer whose thresholds `delta` crosses, into deeper."""
    size, width = layers[layer, SIZE], layers[layer, WIDTH]
    signs, margins = layers[layer, SIGNS] + row * width, layers[layer, MARGINS] + row * width
    count = 0
    for begin in range(0, size, BLOCK):
        mask = above_each(store, delta + begin, signs + begin, margins + begin)
        while mask != 0:
            scratch.deeper[count] = begin + lowest_bit(mask)
            mask &= mask - np.uint64(1)
            count += 1
    return count


@njit
def remember(scratch, layer, count):
    """The entry of the set in members and whether it has a value; a new one if there was none, -1 if memory is full."""
    members, slots, entries, arena, used = (
        scratch.members,
        scratch.slots,
        scratch.entries,
        scratch.arena,
        scratch.used,
    )
    mix = np.uint64(layer + 1)
    for c in range(count):
        mix = (mix ^ np.uint64(members[c] + 1)) * MULTIPLIER
    slot = np.int64(mix >> np.uint64(33)) & (slots.size - 1)
    while slots[slot] >= 0:
        entry = slots[slot]
        if entries[entry, 0] == layer and entries[entry, 2] == count:
            start, same = entries[entry, 1], True
            for c in range(count):
                if arena[start + c] != members[c]:
                    same = False
                    break
            if same:
                return np.int64(entry), True
        slot = (slot + 1) & (slots.size - 1)
    if used[0] == entries.shape[0] or used[1] + count > arena.size:
        return np.int64(-1), False
    entry, start = used[0], used[1]
    slots[slot] = entry
    entries[entry, 0], entries[entry, 1], entries[entry, 2], entries[entry, 3] = layer, start, count, slot
    for c in range(count):
        arena[start + c] = members[c]
    used[0] += 1
    used[1] += count
    return entry, False


@njit
def forget(scratch):
    """Empty the memory: its sets belong to one row."""
    for entry in range(scratch.used[0]):
        scratch.slots[scratch.entries[entry, 3]] = -1
    scratch.used[:] = 0
