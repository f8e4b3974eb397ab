"""Direct terms of the CPU kernel: how the distributions of the targets change when units are flipped.

Single units lie in the lanes of a tile, all targets one after the other; sets of units have the targets in the lanes.
Numbers of the tables are float32 or float64; sums and logarithms are float64.
"""

from __future__ import annotations

import math

import numpy as np

from releg.kernels.cpu.layout import ABREAST, BLOCK, GROUP, TILE
from releg.kernels.cpu.loops import add_row, clear_row, logarithm, multiply_tile, multiply_two
from releg.kernels.cpu.tables import LIMIT, STEEP
from releg.kernels.cpu.vector import (
    LANES,
    at,
    bits,
    exponent,
    fma,
    inlined,
    like,
    load,
    mantissa,
    signs,
    step,
    store,
    widen,
)

F64, I32, I64, U32, U64 = np.float64, np.int32, np.int64, np.uint32, np.uint64
SET_LIMIT = 512.0  # sum of |d| in all lanes of a product: exp(512) * FAR fits float64
FAR = 1e80  # a running product outside [1 / FAR, FAR] is turned into its logarithm
TABLE = 24 << 10  # numbers of a table that stay in the second-level cache, with room for all else


@step
def add_units(number, link, layer, scratch, first, count, power):
    """Add the softplus changes of the targets, times power (+1 or -1), to change: all units, `count` slots."""
    for begin in range(0, link.units, TILE):
        for done in range(0, count, ABREAST):
            multiply_rows(number, link, layer, scratch, begin, first + done, min(ABREAST, count - done), power)
    if link.largest_top > STEEP:
        for slot in range(first, first + count):
            add_steep(number, link, layer, scratch, slot, power)


@inlined
def multiply_rows(number, link, layer, scratch, begin, slot, rows, power):
    """Add the softplus changes of the targets for a tile of units and at most five slots, from the given one on."""
    table, lean = at(number, link.slopes, begin * link.padded), at(number, link.lean, slot * link.stride)
    last, stride = rows - 1, link.stride
    offsets = min(1, last) * stride, min(2, last) * stride, min(3, last) * stride, min(4, last) * stride
    signs_of, width = at(number, layer.signs, slot * layer.width + begin), layer.width
    sa0, sa1 = signs_at(signs_of, 0)
    sb0, sb1 = signs_at(signs_of, min(1, last) * width)
    sc0, sc1 = signs_at(signs_of, min(2, last) * width)
    sd0, sd1 = signs_at(signs_of, min(3, last) * width)
    se0, se1 = signs_at(signs_of, min(4, last) * width)
    bits_of = sa0, sa1, sb0, sb1, sc0, sc1, sd0, sd1, se0, se1
    cuts, start = at(I32, link.cuts, begin // TILE * (link.padded // GROUP + 1)), 0
    clear_products(number, scratch)
    for chunk in range(cuts[0]):
        end = np.int64(cuts[1 + chunk])
        a0, a1, b0, b1, c0, c1, d0, d1, e0, e1 = multiply_tile(table, lean, offsets, bits_of, start, end)
        keep_products(number, scratch, 0, a0, a1)
        keep_products(number, scratch, 1, b0, b1)
        keep_products(number, scratch, 2, c0, c1)
        keep_products(number, scratch, 3, d0, d1)
        keep_products(number, scratch, 4, e0, e1)
        start = end
    for row in range(rows):
        change = at(F64, layer.change, (slot + row) * width + begin)
        for part in range(0, TILE, LANES):
            place, sign = row * TILE + part, load(signs_of, row * width + part)
            m, k = load(at(number, scratch.mantissas, 0), place), load(at(number, scratch.powers, 0), place)
            store(change, part, changed(link, change, begin, part, sign, m, k, power))


@inlined
def signs_at(signs_of, place):
    """The sign bits of a tile."""
    return signs(load(signs_of, place)), signs(load(signs_of, place + LANES))


@inlined
def clear_products(number, scratch):
    """Begin the products of a tile and five rows: they are 1."""
    mantissas, powers = at(number, scratch.mantissas, 0), at(number, scratch.powers, 0)
    for place in range(ABREAST * TILE):
        mantissas[place], powers[place] = 1, 0


@inlined
def keep_products(number, scratch, row, p0, p1):
    """Multiply two vectors into the products of a row; exponents are kept apart, so that these stay in range."""
    mantissas, powers = at(number, scratch.mantissas, row * TILE), at(number, scratch.powers, row * TILE)
    p0, p1 = p0 * load(mantissas, 0), p1 * load(mantissas, LANES)
    store(mantissas, 0, mantissa(p0))
    store(mantissas, LANES, mantissa(p1))
    store(powers, 0, load(powers, 0) + exponent(p0))
    store(powers, LANES, load(powers, LANES) + exponent(p1))


@inlined
def changed(link, change, begin, part, sign, m, k, power):
    """change + power * sum_j log(sigmoid(-r) + sigmoid(r) exp(s w)), m 2**k being the product of all 1 + s c T."""
    half, level = load(at(F64, link.half, begin), part), load(at(F64, link.level, begin), part)
    inside = fma(widen(k), like(half, math.log(2)), widen(logarithm(m)))
    return fma(like(half, power), inside + fma(widen(sign), half, level), load(change, part))


@step
def add_steep(number, link, layer, scratch, slot, power):
    """Add the softplus changes by weights that are too steep for their tile, for one slot, in the first form."""
    counts, change = at(I32, link.steep_count, 0), at(F64, layer.change, slot * layer.width)
    signs_of, logits = at(number, layer.signs, slot * layer.width), at(number, link.logits, slot * link.stride)
    stay, move = at(number, link.stay, slot * link.stride), at(number, link.move, slot * link.stride)
    products = at(F64, scratch.values, 0)  # free before the row is walked
    for i in range(link.units):
        more, p = 0.0, 1.0
        for c in range(i * link.padded, i * link.padded + counts[i]):
            j = I64(at(I32, link.steep, 0)[c])
            w, ratio = F64(at(number, link.weights, i)[j * link.units]), F64(at(number, link.steep_ratio, 0)[c])
            if abs(w) > LIMIT:
                more += softplus_difference(F64(logits[j]), signs_of[i] * w)
            else:
                p *= stay[j] + move[j] * (ratio if signs_of[i] > 0 else 1.0 / ratio)
            if p > FAR or p < 1.0 / FAR:
                more, p = more + math.log(p), 1.0
        products[i] = p
        change[i] += power * more
    for i in range(0, link.units, LANES):
        store(change, i, fma(like(load(change, i), power), logarithm(load(products, i)), load(change, i)))


@inlined
def row_of(link, signs_of, k):
    """Where the ratios of a unit begin; without a branch, since its sign is unpredictable."""
    return (2 * k + I64(signs_of[k] < 0)) * link.ratio_stride


@inlined
def multiply_targets(number, link, scratch, slot, first, second, begin, end, which):
    """The factors of two sets of units over blocks begin to end - 1 of a link's targets; which of these change.

    A set is its start, count and key; the second has at least as many members as the first.
    """
    stay, move = at(number, link.stay, slot * link.stride), at(number, link.move, slot * link.stride)
    turns = at(number, link.turn_ratio, slot * link.stride)
    downward = at(U32, link.downward, slot * (link.stride // BLOCK))
    ratio, rows = at(number, link.ratio, 0), at(I64, scratch.rows, 0)
    return multiply_two(stay, move, ratio, rows, first, second, begin, end, turns, downward, which)


@step
def softplus_of_set(number, link, scratch, slot, signs_of, which, begin, end):
    """Softplus changes of the targets of some blocks, for a set whose products leave the range within one block.

    Which of the targets change goes into the set's key.
    """
    start, count, key = which
    delta = set_delta(number, link, scratch, signs_of, start, count)
    compare_delta(number, link, slot, delta, begin, end, key)
    logits, change = at(number, link.logits, slot * link.stride), 0.0
    for j in range(begin * BLOCK, min(end * BLOCK, link.targets)):
        change += softplus_difference(F64(logits[j]), F64(delta[j]))
    return change


@inlined
def compare_delta(number, link, slot, delta, begin, end, key):
    """Which targets change, from the changes of their logits."""
    turn = at(number, link.turn, slot * link.stride)
    downward = at(U32, link.downward, slot * (link.stride // BLOCK))
    for block in range(begin, end):
        word = U64(0)
        for place in range(0, BLOCK, LANES):
            j = block * BLOCK + place
            word |= bits(load(delta, j) > load(turn, j)) << U64(place)
        key[block] = U32(word) ^ downward[block]


@inlined
def set_delta(number, link, scratch, signs_of, start, count):
    """d of every target, for the flips of a set of units."""
    delta, members = at(number, scratch.line, 0), at(I32, scratch.members, 0)
    clear_row(delta, link.stride)
    for c in range(start, start + count):
        k = I64(members[c])
        add_row(delta, at(number, link.plain, k * link.stride), signs_of[k], link.stride)
    return delta


@inlined
def within_range(link, count, blocks):
    """Whether the factors of that many blocks fit into one product, for any set of that size."""
    size = F64(count)
    return size * link.largest_top * blocks <= LIMIT and size * link.largest_spread <= SET_LIMIT


@inlined
def blocks_within_range(number, link, scratch, start, count):
    """How many blocks of targets a product may span without any lane leaving its range; 0: not even one."""
    top, members = at(number, link.top, 0), at(I32, scratch.members, 0)
    bound = 0.0
    for c in range(start, start + count):
        bound += top[members[c]]
    return I64(min(LIMIT / bound, F64(link.stride)))


@inlined
def softplus_difference(before, delta):
    """softplus(before + delta) - softplus(before)."""
    after = before + delta
    change = max(after, 0.0) - max(before, 0.0) + math.log1p(math.exp(-abs(after)))
    return change - math.log1p(math.exp(-abs(before)))
