"""Some rows in the CPU kernel: down through the layers, which units change with what; then up, adding.

Each node (see sets) is followed by one of the next layer, the units that change with it: `follow` says which, and the
change of f further down is that node's value.
"""

from __future__ import annotations

import math

import numpy as np

from releg.kernels.cpu.layout import BLOCK, LAYER, LINK, SCRATCH
from releg.kernels.cpu.loops import clear_row, larger, logarithm, multiply_blocks, product_of
from releg.kernels.cpu.sets import WORD, active_of, first_of, forget, nothing, number_of, size_of, sort_sets, words_of
from releg.kernels.cpu.tables import prepare_rows
from releg.kernels.cpu.terms import (
    FAR,
    TABLE,
    add_units,
    entropy_of_set,
    find_rows,
    softplus_of_set,
    within_range,
)
from releg.kernels.cpu.vector import (
    LANES,
    at,
    bits,
    inlined,
    like,
    load,
    record_at,
    select,
    spread,
    step,
    store,
    total,
    widen,
)

F64, I32, I64, U32, U64 = np.float64, np.int32, np.int64, np.uint32, np.uint64


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
        multiply_sets(number, call, scratch, index, 2 * index, slot, False)
        if index + 1 < call.depth:
            forget(scratch, index + 1)
            follow_units(number, call, scratch, index, slot)
            follow_sets(number, call, scratch, index, slot)
            sort_sets(scratch, index + 1)
    deepest = record_at(LAYER, call.layers, call.depth - 1)
    for i in range(deepest.size):
        follow[deepest.first + i] = none
    for n in range(firsts[call.depth - 1], firsts[call.depth]):
        follow[none + 1 + n] = none
    products, values = at(F64, scratch.products, 0), at(F64, scratch.values, none + 1)
    for n in range(0, firsts[call.depth], LANES):
        store(values, n, load(values, n) + logarithm(load(products, n)))


@step
def follow_units(number, call, scratch, index, slot):
    """For every unit of a layer: which node follows, and the sum over its changed units, the third line of G_l."""
    layer, deeper = record_at(LAYER, call.layers, index), record_at(LAYER, call.layers, index + 1)
    link = record_at(LINK, call.links, 2 * index + 1)
    if call.entropy != 0:
        entropy_of_units(number, link, layer, deeper, scratch, slot)
    at(I64, scratch.met, 0)[index + 1] = 0
    activate(number, call, scratch, index + 1, slot, at(number, deeper.reach, 0), False)
    words = words_of(scratch, index + 1)
    for word in range(words):
        fill_masks(number, layer, scratch, index, slot, word)
    follow, active, many = at(I32, scratch.follow, layer.first), active_of(scratch, index + 1), at(I32, scratch.many, 0)
    found, none = 0, nothing(call)
    for i in range(layer.size):  # without a branch for masks of one word: how many units change cannot be foretold
        mask = at(U32, scratch.masks, i)
        count = size_of(mask, layer.width, words)
        many[found] = i
        found += count > 1
        follow[i] = deeper.first + active[first_of(mask, layer.width, words)] if count == 1 else none
    for m in range(found):
        i = I64(many[m])
        mask = at(U32, scratch.masks, i)
        count = size_of(mask, layer.width, words)
        follow[i] = none + 1 + number_of(number, call, scratch, index + 1, slot, mask, layer.width, words, count)


@inlined
def entropy_of_units(number, link, layer, deeper, scratch, slot):
    """What turns the softplus changes of the next layer into changes of its entropies, for every single unit."""
    signs, change = at(number, layer.signs, slot * layer.width), at(F64, layer.change, slot * layer.width)
    members, rows, place = at(I32, scratch.members, 0), at(I64, scratch.rows, 0), deeper.members
    for i in range(layer.size):
        members[place] = i
        find_rows(link, signs, members, rows, place, place + 1)
        change[i] += entropy_of_set(number, link, scratch, slot, signs, place, 1)


@inlined
def activate(number, call, scratch, index, slot, reach, more):
    """Units of a layer nearer to their threshold than reach become active; with `more`, those that are not yet so."""
    layer, link = record_at(LAYER, call.layers, index), record_at(LINK, call.links, 2 * index - 1)
    margins, single = at(number, layer.margins, slot * layer.width), at(number, layer.reach, 0)
    signs, logits = at(number, layer.signs, slot * layer.width), at(number, link.logits, slot * link.stride)
    active, limits, met = active_of(scratch, index), at(number, scratch.limits, 0), at(I64, scratch.met, 0)
    counted, count = 0 if call.entropy != 0 else 1, met[index]
    for k in range(layer.size):
        active[count] = k
        count += (margins[k] < reach[k]) & ~(more & (margins[k] < single[k]))
    for a in range(met[index], count):
        k = I64(active[a])
        limits[a], limits[scratch.widest + a] = signs[k], margins[k]
        limits[2 * scratch.widest + a] = counted * logits[k]
    for a in range(count, max(1, (count + WORD - 1) // WORD) * WORD):
        limits[scratch.widest + a] = np.inf  # nothing changes behind the last one
    met[index] = count


@inlined
def fill_masks(number, layer, scratch, index, slot, word):
    """Bit a: whether the active unit 32 word + a changes with a unit; what that adds to f, into change."""
    active, limits = active_of(scratch, index + 1), at(number, scratch.limits, 0)
    signs, change = at(number, layer.signs, slot * layer.width), at(F64, layer.change, slot * layer.width)
    masks, widest = at(U32, scratch.masks, word * layer.width), scratch.widest
    begin, end = word * WORD, min(word * WORD + WORD, at(I64, scratch.met, 0)[index + 1])
    across, cross = at(number, layer.across, 0), at(number, layer.cross, 0)
    for i in range(0, layer.size, LANES):
        s = load(signs, i)
        mask, more, none = spread(U32(0)), like(s, 0.0), like(s, 0.0)
        for a in range(begin, end):
            row = I64(active[a]) * layer.width + i
            both = spread(limits[a]) * s
            hit = both * load(across, row) > spread(limits[widest + a])
            mask = mask | select(hit, spread(U32(U64(1) << U64(a - begin))), spread(U32(0)))
            moved = both * load(cross, row) - spread(limits[a]) * spread(limits[2 * widest + a])
            more = more + select(hit, moved, none)
        store(masks, i, mask)
        store(change, i, load(change, i) + widen(more))


@inlined
def tile_of(members):
    """How many blocks of targets to do at once, so that the rows of that many units stay in the cache."""
    return max(1, TABLE // (BLOCK * max(1, members)))


@step
def multiply_sets(number, call, scratch, index, link_index, slot, inference):
    """The softplus changes of a link's targets, for every set of a layer: of log p below, or of -log q if inference."""
    link, layer = record_at(LINK, call.links, link_index), record_at(LAYER, call.layers, index)
    firsts, rows, order = at(I64, scratch.firsts, index), at(I64, scratch.rows, 0), at(I32, scratch.order, 0)
    starts, sizes = at(I32, scratch.starts, 0), at(I32, scratch.sizes, 0)
    values, products = at(F64, scratch.values, nothing(call) + 1), at(F64, scratch.products, 0)
    stay, move = at(number, link.stay, slot * link.stride), at(number, link.move, slot * link.stride)
    ratio, blocks, tile = at(number, link.ratio, 0), link.stride // BLOCK, tile_of(at(I64, scratch.met, 0)[index])
    for begin in range(0, blocks, tile):
        end = min(begin + tile, blocks)
        for place in range(firsts[1] - firsts[0]):
            n = I64(order[place])
            start, count = I64(starts[n]), I64(sizes[n])
            if within_range(link, count, end - begin):
                p = product_of(multiply_blocks(stay, move, ratio, rows, start, count, begin, end))
                keep(values, products, n, products[n] * p if inference else products[n] / p)
            else:
                signs = at(number, layer.signs, slot * layer.width)
                change = softplus_of_set(number, link, scratch, slot, signs, start, count, begin, end)
                values[n] += change if inference else -change


@inlined
def keep(values, products, n, p):
    """Let p be the product of set n, or its logarithm a part of its value where it could leave the range."""
    if p > FAR or p < 1.0 / FAR:
        values[n] += math.log(p)
        p = 1.0
    products[n] = p


@step
def follow_sets(number, call, scratch, index, slot):
    """The terms of the next layer and which node follows, for every set of a layer."""
    layer, link = record_at(LAYER, call.layers, index), record_at(LINK, call.links, 2 * index + 1)
    firsts, order = at(I64, scratch.firsts, index), at(I32, scratch.order, 0)
    starts, sizes = at(I32, scratch.starts, 0), at(I32, scratch.sizes, 0)
    members, rows, sets = at(I32, scratch.members, 0), at(I64, scratch.rows, 0), firsts[1] - firsts[0]
    if sets == 0:
        return
    signs = at(number, layer.signs, slot * layer.width)
    for place in range(sets):
        n = I64(order[place])
        find_rows(link, signs, members, rows, I64(starts[n]), I64(starts[n]) + sizes[n])
    multiply_sets(number, call, scratch, index, 2 * index + 1, slot, True)
    activate_more(number, call, scratch, index, slot)
    fill_shifts(number, call, scratch, index, slot)
    for place in range(sets):
        follow_set(number, call, scratch, index, slot, I64(order[place]))


@inlined
def activate_more(number, call, scratch, index, slot):
    """Units of the next layer that some set of this layer's active units could change become active, too."""
    layer, deeper = record_at(LAYER, call.layers, index), record_at(LAYER, call.layers, index + 1)
    link, reach = record_at(LINK, call.links, 2 * index + 1), at(number, scratch.line, 0)
    active = active_of(scratch, index)
    signs, deeper_signs = at(number, layer.signs, slot * layer.width), at(number, deeper.signs, slot * deeper.width)
    clear_row(reach, link.stride)
    for a in range(at(I64, scratch.met, 0)[index]):
        i = I64(active[a])
        plain = at(number, link.plain, i * link.stride)
        for k in range(0, link.stride, LANES):
            shift = spread(signs[i]) * load(deeper_signs, k) * load(plain, k)
            # a little more than the sum, which has been rounded
            store(reach, k, load(reach, k) + larger(shift * like(shift, 1.0001), like(shift, 0.0)))
    activate(number, call, scratch, index + 1, slot, reach, True)


@inlined
def fill_shifts(number, call, scratch, index, slot):
    """shifts and crosses of the active units of this layer and the next."""
    layer, link = record_at(LAYER, call.layers, index), record_at(LINK, call.links, 2 * index + 1)
    active, targets, met = active_of(scratch, index), active_of(scratch, index + 1), at(I64, scratch.met, 0)
    signs, counted = at(number, layer.signs, slot * layer.width), 0 if call.entropy != 0 else 1
    weights, limits = at(number, record_at(LINK, call.links, 2 * index + 2).weights, 0), at(number, scratch.limits, 0)
    for a in range(met[index]):
        i = I64(active[a])
        plain, row = at(number, link.plain, i * link.stride), a * scratch.widest
        shifts, crosses = at(number, scratch.shifts, row), at(number, scratch.crosses, row)
        for b in range(met[index + 1]):
            k = I64(targets[b])
            both = signs[i] * limits[b]
            shifts[b] = both * plain[k]
            crosses[b] = both * (weights[i * link.targets + k] - counted * plain[k])


@inlined
def follow_set(number, call, scratch, index, slot, n):
    """The third line of G_l of set n, and which node follows."""
    layer, deeper = record_at(LAYER, call.layers, index), record_at(LAYER, call.layers, index + 1)
    link, key = record_at(LINK, call.links, 2 * index + 1), at(U32, scratch.key, 0)
    start, count = I64(at(I32, scratch.starts, 0)[n]), I64(at(I32, scratch.sizes, 0)[n])
    words, after, more = words_of(scratch, index + 1), nothing(call), 0.0
    node = after + 1 + n
    for word in range(words):
        key[word], change = compare_set(number, scratch, start, count, word * WORD)
        more += change
    changed = size_of(key, 1, words)
    if changed == 1:
        after = deeper.first + I64(active_of(scratch, index + 1)[first_of(key, 1, words)])
    elif changed > 1:
        after += 1 + number_of(number, call, scratch, index + 1, slot, key, 1, words, changed)
    if call.entropy != 0:
        signs = at(number, layer.signs, slot * layer.width)
        more += entropy_of_set(number, link, scratch, slot, signs, start, count)
    at(F64, scratch.values, 0)[node] += more
    at(I32, scratch.follow, 0)[node] = after


@inlined
def compare_set(number, scratch, start, count, begin):
    """Which of the active units of the next layer, from `begin` on, change with a set: a word; what that adds to f."""
    places, row = at(I32, scratch.places, start), scratch.widest
    shifts, crosses = at(number, scratch.shifts, begin), at(number, scratch.crosses, begin)
    limits = at(number, scratch.limits, begin)
    s0 = s1 = s2 = s3 = m0 = m1 = m2 = m3 = like(load(limits, 0), 0.0)
    for c in range(count):
        here = I64(places[c]) * row
        s0, s1 = s0 + load(shifts, here), s1 + load(shifts, here + LANES)
        s2, s3 = s2 + load(shifts, here + 2 * LANES), s3 + load(shifts, here + 3 * LANES)
        m0, m1 = m0 + load(crosses, here), m1 + load(crosses, here + LANES)
        m2, m3 = m2 + load(crosses, here + 2 * LANES), m3 + load(crosses, here + 3 * LANES)
    word0, more0 = compare(limits, row, 0, s0, m0)
    word1, more1 = compare(limits, row, LANES, s1, m1)
    word2, more2 = compare(limits, row, 2 * LANES, s2, m2)
    word3, more3 = compare(limits, row, 3 * LANES, s3, m3)
    word = word0 | (word1 << U64(LANES)) | (word2 << U64(2 * LANES)) | (word3 << U64(3 * LANES))
    return U32(word), F64(total((more0 + more1) + (more2 + more3)))


@inlined
def compare(limits, row, at_unit, shift, moved):
    """The same for LANES of these units, from what the set does to them; `row` is the length of a row of limits."""
    hit = shift > load(limits, row + at_unit)
    own = load(limits, at_unit) * load(limits, 2 * row + at_unit)
    return bits(hit), select(hit, moved - own, like(own, 0.0))


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
        out = at(number, call.out, layer.first * call.rows + row * layer.size)
        for i in range(layer.size):
            value = change[i] + values[follow[layer.first + i]]
            values[layer.first + i] = value
            # the flip takes f from f_z to f_(1-z), and log q(z[l] | z[l-1]) by s * a
            out[i] = signs[i] * value - own[i]
