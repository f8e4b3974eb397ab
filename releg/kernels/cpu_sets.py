"""Sets of changed units: found by their thresholds, continued to the deepest layer, remembered per row."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from releg.kernels.cpu_terms import (
    ACROSS,
    LOGITS,
    MARGINS,
    MATCH,
    MOVE,
    NEXT,
    NEXT_STRIDE,
    PLAIN,
    REACH,
    SIGNS,
    SIZE,
    STAY,
    STRIDE,
    TABLE,
    TARGETS,
    THRESHOLDS,
    UNITS,
    WIDTH,
    blocks_within_range,
    entropy_change,
    set_delta,
    set_logarithm,
    set_rows,
    softplus_change,
)
from releg.kernels.simd import BLOCK, above, above_each, lowest_bit, set_logit_means, set_product_and_changes

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
    delta = layout.deltas[worker]
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
        total += generative_change(store, layout, scratch, delta, row, layer, count)
        if layer + 1 == layers.shape[0]:
            break
        total += inference_change(store, layout, scratch, delta, row, layer, count, entropy)
        changed = collect_deeper(scratch, layers[layer + 1, SIZE])
        if changed == 0:
            break
        signs = layers[layer, SIGNS] + row * layers[layer, WIDTH]
        deeper_signs = layers[layer + 1, SIGNS] + row * layers[layer + 1, WIDTH]
        logits = links[2 * layer + 1, LOGITS] + row * links[2 * layer + 1, STRIDE]
        for c in range(changed):
            k = deeper[c]
            crossed = 0.0 if entropy else -float(store[logits + k])
            generative = links[2 * layer + 2, PLAIN] + k * links[2 * layer + 2, STRIDE]
            inference = links[2 * layer + 1, PLAIN] + k
            for m in range(count):
                i = members[m]
                weight = float(store[generative + i])
                if not entropy:
                    weight -= store[inference + i * links[2 * layer + 1, STRIDE]]
                crossed += store[signs + i] * weight
            total += store[deeper_signs + k] * crossed
        for c in range(changed):
            members[c] = deeper[c]
        layer, count = layer + 1, changed
    for done in range(level):
        if scratch.pending[done] >= 0:
            scratch.values[scratch.pending[done]] = total - scratch.before[done]
    return total


@njit
def collect_deeper(scratch, size):
    """The units whose bits are set in masks, into deeper."""
    count = 0
    for block in range((size + BLOCK - 1) // BLOCK):
        mask = scratch.masks[block]
        while mask != 0:
            scratch.deeper[count] = block * BLOCK + lowest_bit(mask)
            mask &= mask - np.uint64(1)
            count += 1
    return count


@njit
def generative_change(store, layout, scratch, delta, row, layer, count):
    """The first line of G_l for the set in members."""
    links, members, link = layout.links, scratch.members, 2 * layer
    signs = layout.layers[layer, SIGNS] + row * layout.layers[layer, WIDTH]
    match = links[link, MATCH] + row * links[link, UNITS]
    own = layout.layers[layer, NEXT] + row * layout.layers[layer, NEXT_STRIDE]
    total = 0.0
    for c in range(count):
        k = members[c]
        total += store[signs + k] * (float(store[match + k]) + float(store[own + k]))
    chunk = blocks_within_range(store, links, link, members, count)
    if chunk > 0:
        return total - set_logarithm(store, links, link, row, signs, members, count, scratch.rows, chunk)
    set_delta(store, links, link, signs, members, count, delta)
    logits = links[link, LOGITS] + row * links[link, STRIDE]
    return total - softplus_change(store, logits, delta, 1.0, links[link, TARGETS])


@njit
def inference_change(store, layout, scratch, delta, row, layer, count, entropy):
    """The second line of G_l for the set in members, or the change of the entropy; masks say which targets change."""
    links, layers, members, rows = layout.links, layout.layers, scratch.members, scratch.rows
    link = 2 * layer + 1
    signs = layers[layer, SIGNS] + row * layers[layer, WIDTH]
    stride = links[link, STRIDE]
    blocks = stride // BLOCK
    stay, move = links[link, STAY] + row * stride, links[link, MOVE] + row * stride
    deeper = row * layers[layer + 1, WIDTH]
    deeper_signs, thresholds = layers[layer + 1, SIGNS] + deeper, layers[layer + 1, THRESHOLDS] + deeper
    in_one = blocks_within_range(store, links, link, members, count) >= blocks
    total = 0.0
    if in_one:
        ups, taken_out = set_rows(store, links, link, signs, members, count, rows)
        product = set_product_and_changes(
            store, stay, move, rows, ups, count, blocks, deeper_signs, thresholds, scratch.masks
        )
        total = math.log(product) - taken_out
    if entropy or not in_one:
        set_delta(store, links, link, signs, members, count, delta)
        logits = links[link, LOGITS] + row * stride
        if in_one:
            now = set_logit_means(store, stay, move, rows, 0, 0, blocks, logits, delta, 0)
            return total + now - set_logit_means(store, stay, move, rows, ups, count, blocks, logits, delta, 1)
        for block in range(blocks):
            at, margins = block * BLOCK, layers[layer + 1, MARGINS] + deeper
            scratch.masks[block] = above_each(store, delta + at, deeper_signs + at, margins + at)
        if entropy:
            return entropy_change(store, logits, delta, 1.0, links[link, TARGETS])
        total = softplus_change(store, logits, delta, 1.0, links[link, TARGETS])
    match = links[link, MATCH] + row * links[link, UNITS]
    for c in range(count):
        total -= store[signs + members[c]] * float(store[match + members[c]])
    return total


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
