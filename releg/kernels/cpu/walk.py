"""Walks some rows in the CPU kernel: down the layers to find which units change with which; then up, adding.

Each node (see sets) is followed by one of the next layer, the units that change with it: `follow` says which, and the
change of f further down is that node's value.
"""

from __future__ import annotations

import math

import numpy as np

from releg.kernels.cpu.layout import BLOCK, LAYER, LINK, SCRATCH, WORD
from releg.kernels.cpu.loops import logarithm, logarithm_of, product_of
from releg.kernels.cpu.sets import end_of_members, first_of, forget, nothing, number_of, size_of, sort_sets
from releg.kernels.cpu.tables import prepare_rows
from releg.kernels.cpu.terms import (
    FAR,
    TABLE,
    add_units,
    blocks_within_range,
    multiply_targets,
    row_of,
    softplus_of_set,
    within_range,
)
from releg.kernels.cpu.vector import LANES, at, inlined, like, load, record_at, select, spread, step, store, widen

F64, I32, I64, U32, U64 = np.float64, np.int32, np.int64, np.uint32, np.uint64
BYTES = WORD // 8


@step
def flip_group(number, call, worker, first, last):
    """f1 - f0 of every unit of some rows into out; the terms of single units for all rows at once."""
    begin = worker * call.in_hand
    scratch = record_at(SCRATCH, call.scratch, worker)
    prepare_rows(number, call, begin, first, last)
    for index in range(call.depth):
        layer = record_at(LAYER, call.layers, index)
        add_units(number, record_at(LINK, call.links, 2 * index), layer, scratch, begin, last - first, -1.0)
        if index + 1 < call.depth:
            add_units(number, record_at(LINK, call.links, 2 * index + 1), layer, scratch, begin, last - first, 1.0)
    for row in range(first, last):
        walk_down(number, call, scratch, begin + row - first)
        walk_up(number, call, scratch, begin + row - first, row)


@step
def walk_down(number, call, scratch, slot):
    """The terms of all sets and which node follows which, layer by layer."""
    firsts, follow, none = at(I64, scratch.firsts, 0), at(I32, scratch.follow, 0), nothing(call)
    firsts[0] = firsts[1] = 0
    for index in range(call.depth):
        sort_sets(scratch, index)
        begin_sets(number, call, scratch, index, slot)
        multiply_sets(number, call, scratch, index, 2 * index, slot, False)
        if index + 1 < call.depth:
            firsts[index + 2] = firsts[index + 1]
            follow_units(number, call, scratch, index, slot)
            follow_sets(number, call, scratch, index, slot)
    deepest = record_at(LAYER, call.layers, call.depth - 1)
    for i in range(deepest.size):
        follow[deepest.first + i] = none
    for n in range(firsts[call.depth - 1], firsts[call.depth]):
        follow[none + 1 + n] = none
    products, values = at(F64, scratch.products, 0), at(F64, scratch.values, none + 1)
    for n in range(0, firsts[call.depth], LANES):
        store(values, n, load(values, n) + logarithm(load(products, n)))


@inlined
def begin_sets(number, call, scratch, index, slot):
    """The linear terms of every set of a layer, and where the ratios of its members are."""
    layer, link = record_at(LAYER, call.layers, index), record_at(LINK, call.links, 2 * index)
    firsts, order = at(I64, scratch.firsts, index), at(I32, scratch.order, 0)
    starts, sizes = at(I32, scratch.starts, 0), at(I32, scratch.sizes, 0)
    members, rows = at(I32, scratch.members, 0), at(I64, scratch.rows, 0)
    values, products = at(F64, scratch.values, nothing(call) + 1), at(F64, scratch.products, 0)
    signs, linear = at(number, layer.signs, slot * layer.width), at(F64, layer.linear, slot * layer.width)
    for place in range(firsts[1] - firsts[0]):
        n = I64(order[place])
        start, count, value = I64(starts[n]), I64(sizes[n]), 0.0
        for c in range(start, start + count):
            k = I64(members[c])
            rows[c] = row_of(link, signs, k)
            value += linear[k]
        values[n], products[n] = value, 1.0


@step
def follow_units(number, call, scratch, index, slot):
    """For every unit of a layer: which node follows, and the sum over its changed units, the third line of G_l."""
    layer = record_at(LAYER, call.layers, index)
    activate(number, call, scratch, index + 1, slot)
    fill_masks(number, call, scratch, index, slot)
    follow, counts, many = at(I32, scratch.follow, layer.first), at(I32, scratch.counts, 0), at(I32, scratch.many, 0)
    found, none, words = 0, nothing(call), words_of(scratch, index + 1)
    for i in range(layer.size):  # without a branch: the number of changed units is unpredictable
        many[found] = i
        found += counts[i] > 1
    forget(scratch, found)
    active, masks = at(I32, scratch.active, 0), at(U32, scratch.masks, 0)
    for m in range(found):
        i, key_at = I64(many[m]), scratch.keys + BYTES * words * m
        for word in range(words):
            low, high = masks[2 * word * layer.width + i], masks[(2 * word + 1) * layer.width + i]
            at(U64, key_at, 0)[word] = U64(low) | U64(high) << U64(BLOCK)
        follow[i] = none + 1 + number_of(call, scratch, index + 1, key_at, words, I64(counts[i]), active, 4)


@inlined
def words_of(scratch, index):
    """How many words a mask over the active units of a layer has."""
    return max(1, (at(I64, scratch.active_count, 0)[index] + WORD - 1) // WORD)


@inlined
def words_of_targets(link):
    """How many words a mask over the targets of a link has."""
    return (link.stride + WORD - 1) // WORD


@inlined
def activate(number, call, scratch, index, slot):
    """Units of a layer nearer to their threshold than the largest weight into them become active."""
    layer, link = record_at(LAYER, call.layers, index), record_at(LINK, call.links, 2 * index - 1)
    margins, reach = at(number, layer.margins, slot * layer.width), at(number, layer.reach, 0)
    signs, logits = at(number, layer.signs, slot * layer.width), at(number, link.logits, slot * link.stride)
    active, limits, count = at(I32, scratch.active, 0), at(number, scratch.limits, 0), 0
    for k in range(layer.size):
        active[count] = k
        count += margins[k] < reach[k]
    for a in range(count):
        k = I64(active[a])
        limits[a], limits[scratch.widest + a] = signs[k], margins[k]
        limits[2 * scratch.widest + a] = signs[k] * logits[k]
    at(I64, scratch.active_count, 0)[index] = count


@inlined
def fill_masks(number, call, scratch, index, slot):
    """For every unit of a layer: which of the active units change with it, a bit each, what that adds to f, how many.

    If one unit changes, it is the node that follows; if none does, `nothing` follows.
    """
    layer, deeper = record_at(LAYER, call.layers, index), record_at(LAYER, call.layers, index + 1)
    active, limits, widest = at(I32, scratch.active, 0), at(number, scratch.limits, 0), scratch.widest
    signs, change = at(number, layer.signs, slot * layer.width), at(F64, layer.change, slot * layer.width)
    masks, counts = at(U32, scratch.masks, 0), at(I32, scratch.counts, 0)
    across, cross = at(number, layer.across, 0), at(number, layer.cross, 0)
    follow = at(I32, scratch.follow, layer.first)
    active_count, none = at(I64, scratch.active_count, 0)[index + 1], spread(I32(nothing(call)))
    for i in range(0, layer.size, LANES):
        s = load(signs, i)
        more = zero = like(s, 0.0)
        count = which = spread(I32(0))
        for half in range(2 * words_of(scratch, index + 1)):
            mask = spread(U32(0))
            for a in range(half * BLOCK, min(half * BLOCK + BLOCK, active_count)):
                row = I64(active[a]) * layer.width + i
                both = spread(limits[a]) * s
                hit = both * load(across, row) > spread(limits[widest + a])
                mask = mask | select(hit, spread(U32(U64(1) << U64(a - half * BLOCK))), spread(U32(0)))
                more = more + select(hit, both * load(cross, row) - spread(limits[2 * widest + a]), zero)
                count = count + select(hit, spread(I32(1)), spread(I32(0)))
                which = which + select(hit, spread(active[a]), spread(I32(0)))
            store(masks, half * layer.width + i, mask)
        store(counts, i, count)
        store(change, i, load(change, i) + widen(more))
        after = select(count == spread(I32(1)), which + spread(I32(deeper.first)), none)
        store(follow, i, after)


@inlined
def tile_of(members):
    """How many blocks of targets to do at once, so that the rows of that many units stay in the cache."""
    return max(1, TABLE // (BLOCK * max(1, members)))


@inlined
def multiply_sets(number, call, scratch, index, link_index, slot, deeper):
    """The softplus changes of a link's targets, for every set of a layer: of log p below, or of -log q if deeper."""
    link, layer = record_at(LINK, call.links, link_index), record_at(LAYER, call.layers, index)
    firsts, order = at(I64, scratch.firsts, index), at(I32, scratch.order, 0)
    starts, sizes = at(I32, scratch.starts, 0), at(I32, scratch.sizes, 0)
    values, products = at(F64, scratch.values, nothing(call) + 1), at(F64, scratch.products, 0)
    blocks, halves = link.stride // BLOCK, 2 * words_of_targets(link)
    tile = tile_of(at(I64, scratch.active_count, 0)[index])
    for begin in range(0, blocks, tile):
        end = min(begin + tile, blocks)
        last = firsts[1] - firsts[0] - 1
        for place in range(0, last + 1, 2):  # two sets at a time: the smaller one first, since they are sorted
            beside = min(place + 1, last)
            n, m = I64(order[place]), I64(order[beside])
            one = I64(starts[n]), I64(sizes[n]), at(U32, scratch.keys, place * halves)
            two = I64(starts[m]), I64(sizes[m]), at(U32, scratch.keys, beside * halves)
            sets = scratch, slot, one, two
            if within_range(link, two[1], end - begin):
                p, q = multiply_targets(number, link, *sets, begin, end, deeper)
                keep(values, products, n, product_of(p), deeper)
                if beside > place:
                    keep(values, products, m, product_of(q), deeper)
            else:
                signs = at(number, layer.signs, slot * layer.width)
                change, other = softplus_changes(number, link, *sets, signs, begin, end, deeper)
                values[n] += change if deeper else -change
                if beside > place:
                    values[m] += other if deeper else -other


@inlined
def softplus_changes(number, link, scratch, slot, one, two, signs, begin, end, deeper):
    """Softplus changes of two sets whose products could leave the range: of fewer blocks at a time, or term by term."""
    chunk = min(
        blocks_within_range(number, link, scratch, one[0], one[1]),
        blocks_within_range(number, link, scratch, two[0], two[1]),
    )
    change = other = 0.0
    if chunk == 0:
        change = softplus_of_set(number, link, scratch, slot, signs, one, begin, end)
        return change, softplus_of_set(number, link, scratch, slot, signs, two, begin, end)
    for first in range(begin, end, chunk):
        last = min(first + chunk, end)
        p, q = multiply_targets(number, link, scratch, slot, one, two, first, last, deeper)
        change, other = change + logarithm_of(p), other + logarithm_of(q)
    return change, other


@inlined
def keep(values, products, n, p, deeper):
    """Multiply or divide the product of set n by p; if it could leave the range, add its logarithm to the value."""
    p = products[n] * p if deeper else products[n] / p
    if p > FAR or p < 1.0 / FAR:
        values[n] += math.log(p)
        p = 1.0
    products[n] = p


@step
def follow_sets(number, call, scratch, index, slot):
    """The terms of the next layer and which node follows, for every set of a layer."""
    firsts, order = at(I64, scratch.firsts, index), at(I32, scratch.order, 0)
    words = words_of_targets(record_at(LINK, call.links, 2 * index + 1))
    for place in range(firsts[1] - firsts[0]):
        at(U64, scratch.keys, place * words)[words - 1] = 0  # half of it may belong to no block of targets
    multiply_sets(number, call, scratch, index, 2 * index + 1, slot, True)
    forget(scratch, firsts[1] - firsts[0])
    for place in range(firsts[1] - firsts[0]):
        follow_set(number, call, scratch, index, slot, place, I64(order[place]))


@inlined
def follow_set(number, call, scratch, index, slot, place, n):
    """The third line of G_l of set n, and which node follows."""
    deeper = record_at(LAYER, call.layers, index + 1)
    link, starts = record_at(LINK, call.links, 2 * index + 1), at(I32, scratch.starts, 0)
    start, count = I64(starts[n]), I64(at(I32, scratch.sizes, 0)[n])
    words, after, more = words_of_targets(link), nothing(call), 0.0
    node, key_at = after + 1 + n, scratch.keys + BYTES * words * place
    key = at(U64, key_at, 0)
    changed = size_of(key, words)
    if changed > 1:
        m = number_of(call, scratch, index + 1, key_at, words, changed, at(I32, scratch.every, 0), 3)
        after += 1 + m
        more = terms_of_pairs(number, call, scratch, index, slot, start, count, I64(starts[m]), changed)
    elif changed == 1:
        k = first_of(key, words)
        after = deeper.first + k
        free = end_of_members(call, scratch, index + 1, at(I64, scratch.firsts, index + 1)[1])
        at(I32, scratch.members, 0)[free] = k
        more = terms_of_pairs(number, call, scratch, index, slot, start, count, free, 1)
    at(F64, scratch.values, 0)[node] += more
    at(I32, scratch.follow, 0)[node] = after


@inlined
def terms_of_pairs(number, call, scratch, index, slot, start, count, start_after, changed):
    """The sum over changed k, members from start_after on, of s_k (sum over C of s (W_ik - V_ki) - a_k)."""
    layer, deeper = record_at(LAYER, call.layers, index), record_at(LAYER, call.layers, index + 1)
    link, members = record_at(LINK, call.links, 2 * index + 1), at(I32, scratch.members, 0)
    signs, deeper_signs = at(number, layer.signs, slot * layer.width), at(number, deeper.signs, slot * deeper.width)
    logits, more = at(number, link.logits, slot * link.stride), number(0)
    for c in range(start_after, start_after + changed):
        k = I64(members[c])
        cross, moved = at(number, layer.cross, k * layer.width), number(0)
        for d in range(start, start + count):
            i = I64(members[d])
            moved += signs[i] * cross[i]
        more += deeper_signs[k] * (moved - logits[k])
    return F64(more)


@step
def walk_up(number, call, scratch, slot, row):
    """G of every set and unit, those of the next layer being known; f1 - f0 of the units into out."""
    values, follow = at(F64, scratch.values, 0), at(I32, scratch.follow, 0)
    firsts, none = at(I64, scratch.firsts, 0), nothing(call)
    values[none] = 0.0
    for back in range(call.depth):
        index = call.depth - 1 - back
        layer = record_at(LAYER, call.layers, index)
        for node in range(none + 1 + firsts[index], none + 1 + firsts[index + 1]):
            values[node] += values[follow[node]]
        signs, change = at(number, layer.signs, slot * layer.width), at(F64, layer.change, slot * layer.width)
        own = at(number, layer.own_of, row * layer.size)
        out = at(number, call.out, layer.before * call.rows + row * layer.size)
        for i in range(layer.size):
            value = change[i] + values[follow[layer.first + i]]
            values[layer.first + i] = value
            # the flip takes f from f_z to f_(1-z), and log q(z[l] | z[l-1]) by s * a
            out[i] = signs[i] * value - own[i]
