"""Direct terms of the CPU kernel: how the distributions of the targets change when units are flipped.

Single units lie in the lanes of a tile, all targets one after the other; sets of units have the targets in the lanes.
Numbers of the tables are float32 or float64; sums and logarithms are float64.
"""

from __future__ import annotations

import math

import numpy as np

from releg.kernels.cpu.layout import BLOCK, GROUP, TILE
from releg.kernels.cpu.loops import (
    add_row,
    clear_row,
    factor,
    logarithm,
    logarithm_of,
    multiply_blocks,
    multiply_tile,
    set_ratio,
)
from releg.kernels.cpu.tables import LIMIT, STEEP
from releg.kernels.cpu.vector import (
    LANES,
    at,
    exponent,
    fma,
    inlined,
    like,
    load,
    mantissa,
    signs,
    step,
    store,
    total,
    widen,
)

F64, I32, I64 = np.float64, np.int32, np.int64
SET_LIMIT = 512.0  # sum of |d| in all lanes of a product: exp(512) * FAR fits float64
FAR = 1e80  # a running product outside [1 / FAR, FAR] is turned into its logarithm
TABLE = 24 << 10  # numbers of a table that stay in the second-level cache, with room for all else


@step
def add_units(number, link, layer, scratch, first, count, power):
    """Add the softplus changes of the targets, times power (+1 or -1), to change: all units, `count` slots."""
    for begin in range(0, link.units, TILE):
        for pair in range(0, count, 2):
            multiply_pair(number, link, layer, begin, first + pair, first + min(pair + 1, count - 1), power)
    if link.largest_top > STEEP:
        for slot in range(first, first + count):
            add_steep(number, link, layer, scratch, slot, power)


@inlined
def multiply_pair(number, link, layer, begin, a, b, power):
    """The same for a tile of units and two slots, which may be one and the same."""
    table = at(number, link.slopes, begin * link.padded)
    left, right = at(number, link.lean, a * link.stride), at(number, link.lean, b * link.stride)
    sa, sb = at(number, layer.signs, a * layer.width + begin), at(number, layer.signs, b * layer.width + begin)
    bits_of = signs(load(sa, 0)), signs(load(sa, LANES)), signs(load(sb, 0)), signs(load(sb, LANES))
    one = like(load(sa, 0), 1.0)
    a0 = a1 = b0 = b1 = one
    ka0 = ka1 = kb0 = kb1 = like(one, 0.0)
    cuts, start = at(I32, link.cuts, begin // TILE * (link.padded // GROUP + 1)), 0
    for chunk in range(cuts[0]):
        end = np.int64(cuts[1 + chunk])
        a0, a1, b0, b1 = multiply_tile(table, left, right, bits_of, start, end, (a0, a1, b0, b1))
        ka0, ka1, kb0, kb1 = ka0 + exponent(a0), ka1 + exponent(a1), kb0 + exponent(b0), kb1 + exponent(b1)
        a0, a1, b0, b1 = mantissa(a0), mantissa(a1), mantissa(b0), mantissa(b1)
        start = end
    first, second = at(F64, layer.change, a * layer.width), at(F64, layer.change, b * layer.width)
    v0 = changed(link, first, begin, load(sa, 0), a0, ka0, power)
    v1 = changed(link, first, begin + LANES, load(sa, LANES), a1, ka1, power)
    v2 = changed(link, second, begin, load(sb, 0), b0, kb0, power)
    v3 = changed(link, second, begin + LANES, load(sb, LANES), b1, kb1, power)
    store(first, begin, v0)
    store(first, begin + LANES, v1)
    store(second, begin, v2)
    store(second, begin + LANES, v3)


@inlined
def changed(link, change, begin, sign, m, k, power):
    """change + power * sum_j log(sigmoid(-r) + sigmoid(r) exp(s w)), m 2**k being the product of all 1 + s c T."""
    half, level = load(at(F64, link.half, 0), begin), load(at(F64, link.level, 0), begin)
    inside = fma(widen(k), like(half, math.log(2)), widen(logarithm(m)))
    return fma(like(half, power), inside + fma(widen(sign), half, level), load(change, begin))


@step
def add_steep(number, link, layer, scratch, slot, power):
    """The same for the units of one slot that are too steep for their tile: each is a set of one."""
    top, change = at(number, link.top, 0), at(F64, layer.change, slot * layer.width)
    signs_of = at(number, layer.signs, slot * layer.width)
    members, rows = at(I32, scratch.members, 0), at(I64, scratch.rows, 0)  # free before the row is walked
    for i in range(link.units):
        if top[i] > STEEP:
            members[0] = i
            find_rows(link, signs_of, members, rows, 0, 1)
            change[i] += power * softplus_of_set(number, link, scratch, slot, signs_of, 0, 1, 0, link.stride // BLOCK)


@inlined
def find_rows(link, signs_of, members, rows, begin, end):
    """Where the ratios of each member begin; without a branch, since signs cannot be foretold."""
    for c in range(begin, end):
        k = I64(members[c])
        rows[c] = (2 * k + I64(signs_of[k] < 0)) * link.stride


@step
def softplus_of_set(number, link, scratch, slot, signs_of, start, count, begin, end):
    """Softplus changes of the targets of blocks begin to end - 1, for a set of units of any size and weight."""
    stay, move = at(number, link.stay, slot * link.stride), at(number, link.move, slot * link.stride)
    chunk = blocks_within_range(number, link, scratch, start, count)
    if chunk == 0:
        delta = set_delta(number, link, scratch, signs_of, start, count)
        logits = at(number, link.logits, slot * link.stride)
        return softplus_change(logits, delta, begin * BLOCK, min(end * BLOCK, link.targets))
    change, ratio, rows = 0.0, at(number, link.ratio, 0), at(I64, scratch.rows, 0)
    for first in range(begin, end, chunk):
        last = min(first + chunk, end)
        change += logarithm_of(multiply_blocks(stay, move, ratio, rows, start, count, first, last))
    return change


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


@step
def softplus_change(logits, delta, begin, end):
    """Sum of softplus(logits + delta) - softplus(logits), term by term: right for weights of any size."""
    change = 0.0
    for j in range(begin, end):
        before = F64(logits[j])
        after = before + delta[j]
        change += max(after, 0.0) - max(before, 0.0) + math.log1p(math.exp(-abs(after)))
        change -= math.log1p(math.exp(-abs(before)))
    return change


@step
def entropy_change(logits, delta, end):
    """Sum of entropy(logits + delta) - entropy(logits), term by term."""
    change = 0.0
    for j in range(end):
        before = abs(F64(logits[j]))
        after = abs(F64(logits[j]) + delta[j])
        decay = math.exp(-after)
        change += after * decay / (1.0 + decay) + math.log1p(decay)
        decay = math.exp(-before)
        change -= before * decay / (1.0 + decay) + math.log1p(decay)
    return change


@step
def entropy_of_set(number, link, scratch, slot, signs_of, start, count):
    """What turns the softplus changes of a set's targets into changes of their entropies.

    entropy(a) = softplus(a) - a sigmoid(a), so that is the change of the sum of -a sigmoid(a).
    """
    logits, targets = at(number, link.logits, slot * link.stride), link.targets
    delta = set_delta(number, link, scratch, signs_of, start, count)
    if blocks_within_range(number, link, scratch, start, count) == 0:
        return entropy_change(logits, delta, targets) - softplus_change(logits, delta, 0, targets)
    stay, move = at(number, link.stay, slot * link.stride), at(number, link.move, slot * link.stride)
    ratio, rows = at(number, link.ratio, 0), at(I64, scratch.rows, 0)
    sums = widen(like(load(stay, 0), 0.0))
    for here in range(0, link.stride, BLOCK):
        r0, r1, r2, r3 = set_ratio(ratio, rows, start, count, here)
        sums = sums + widen(logit_mean(stay, move, logits, delta, r0, here))
        sums = sums + widen(logit_mean(stay, move, logits, delta, r1, here + LANES))
        sums = sums + widen(logit_mean(stay, move, logits, delta, r2, here + 2 * LANES))
        sums = sums + widen(logit_mean(stay, move, logits, delta, r3, here + 3 * LANES))
    return -total(sums)


@inlined
def logit_mean(stay, move, logits, delta, ratio, j):
    """a sigmoid(a) of LANES targets after the flips, less before."""
    before, a = load(move, j), load(logits, j)
    after = before * ratio / factor(stay, move, ratio, j)
    return (a + load(delta, j)) * after - a * before
