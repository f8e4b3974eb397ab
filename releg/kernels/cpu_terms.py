"""The CPU kernel proper: f1 - f0 of every unit for one row of a path (DESIGN: only what a flip changes is computed).

Flipping a set C of units of layer l, everything above it left as it is, changes f by G_l(C), less the change of
log q(z[l] | z[l-1]). With s = +1 for a unit that is 0 and -1 for one that is 1, and d = sum over C of s * weights:

    G_l(C) = sum s * (below @ W + r)          - sum_j log(sigmoid(-r_j) + sigmoid(r_j) exp(d_j))   both log p
           - sum s * (z[l+1] @ V)             + sum_k log(sigmoid(-a_k) + sigmoid(a_k) exp(d_k))   -log q(z[l+1] | z[l])
           + sum over changed k of [-s_k (a_k + d_k) + sum over C of s s_k W_ik] + G_(l+1)(changed)

The logarithms are softplus(r + d) - softplus(r) with nothing but positive terms inside, so factors are multiplied and
few logarithms taken. Each factor lies between 1 and exp(d): how many fit into a product is known from max |weight|.
For units that are 1, sigmoid(-r) and sigmoid(r) change places, which takes exp(sum of weights) out of the product:
exp(W) serves both signs.

Layers are done deepest first, so that G of a single changed unit is a look-up; larger sets are memoised per row.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from numba import njit

from releg.kernels.simd import BLOCK, LANES, add_scaled, fill, row_products, set_logit_means, set_product

# Columns of Layout.links. Row 2 l: from layer l to what it generates; row 2 l + 1: from layer l to the next deeper one.
(UNITS, TARGETS, STRIDE, PLAIN, RATIO, TOP, SPREAD, TOTAL, LOGITS, STAY, MOVE, MATCH) = range(12)
LINK_COLUMNS = 12
# Columns of Layout.layers
(SIZE, SIGNS, MARGINS, THRESHOLDS, WIDTH, OWN, OWN_STRIDE, NEXT, NEXT_STRIDE, ACROSS, REACH, TABLE) = range(12)
LAYER_COLUMNS = 12

LIMIT = 64.0  # sum of |d| in one lane of a product: exp(64) is safe in float32, and exp(8 * 64) * FAR in float64
SET_LIMIT = 512.0  # sum of |d| in all lanes of a product
FAR = 1e80  # a product of products outside [1/FAR, FAR] is turned into its logarithm


class Layout(NamedTuple):
    """Where things are in the store: offsets, sizes and row strides."""

    links: Any  # (2 depth, LINK_COLUMNS) int64
    layers: Any  # (depth, LAYER_COLUMNS) int64
    deltas: Any  # (workers,) int64: a row of numbers for each worker


class Scratch(NamedTuple):
    """What one worker needs for one row of the path; nothing in it survives the row."""

    table: Any  # (sum of sizes,) float64 G of every single unit
    logs: Any  # (H,) float64 change of f so far
    products: Any  # (H,) float64 factors whose logarithm is still to be added
    order: Any  # (H + 3,) int32 units of one sign
    first: Any  # (H,) int32 first hit of a unit, or -1
    hit_unit: Any  # (hits,) int32 changed unit
    hit_next: Any  # (hits,) int32 next hit of the same unit, or -1
    members: Any  # (H,) int32 a set of changed units, ascending
    deeper: Any  # (H,) int32 the set that follows from it
    rows: Any  # (H,) int64 where the members' ratios are: units that are 0, then units that are 1
    masks: Any  # (blocks,) uint64 which targets change
    slots: Any  # (2**n,) int32 hash table: an entry, or -1
    entries: Any  # (E, 4) int32 layer, start, count, slot
    values: Any  # (E,) float64 G of the entry's set
    arena: Any  # (A,) int32 members of all remembered sets
    used: Any  # (2,) int64 number of entries, of numbers in the arena
    pending: Any  # (depth,) int32 entries under evaluation
    before: Any  # (depth,) float64 total when they were begun


@njit
def softplus(x):
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


@njit
def entropy_of(x):
    x = abs(x)
    return x / (1.0 + math.exp(x)) + math.log1p(math.exp(-x)) if x < 700.0 else 0.0


@njit
def softplus_change(store, logits, delta, scale, count):
    """Sum of softplus(logits + scale * delta) - softplus(logits), term by term: right for weights of any size."""
    total = 0.0
    for j in range(count):
        r = float(store[logits + j])
        total += softplus(r + scale * store[delta + j]) - softplus(r)
    return total


@njit
def entropy_change(store, logits, delta, scale, count):
    """Sum of entropy(logits + scale * delta) - entropy(logits), term by term."""
    total = 0.0
    for j in range(count):
        r = float(store[logits + j])
        total += entropy_of(r + scale * store[delta + j]) - entropy_of(r)
    return total


@njit
def steps_of(links, link):
    """Vectors that hold all targets; rows are padded further, to whole blocks."""
    return (links[link, TARGETS] + LANES - 1) // LANES


@njit
def chunk_of(bound, steps):
    """How many vectors can be multiplied into each lane."""
    return steps if bound * steps <= LIMIT else max(1, int(LIMIT / bound))


@njit
def far(product):
    return product > FAR or product < 1.0 / FAR


@njit
def multiply_units(store, links, link, row, signs, scratch, power):
    """For every unit: the softplus changes of its targets, times power (+1 or -1), into products and logs."""
    units, stride = links[link, UNITS], links[link, STRIDE]
    steps, top, ratio = steps_of(links, link), links[link, TOP], links[link, RATIO]
    order, logs, products = scratch.order, scratch.logs, scratch.products
    for side in range(2):
        sign = 1 - 2 * side
        stay = links[link, STAY + side] + row * stride  # sigmoid(-r), or sigmoid(r) for units that are 1
        move = links[link, MOVE - side] + row * stride
        count = 0
        for i in range(units):
            if store[signs + i] == sign and store[top + i] <= LIMIT:
                order[count] = i
                count += 1
        for extra in range(count, count + 3):
            order[extra] = order[count - 1]  # the last group is filled up with copies
        for group in range(0, count, 4):
            i0, i1, i2, i3 = order[group], order[group + 1], order[group + 2], order[group + 3]
            bound = float(max(max(store[top + i0], store[top + i1]), max(store[top + i2], store[top + i3])))
            chunk = chunk_of(bound, steps)
            p0 = p1 = p2 = p3 = 1.0
            t0 = t1 = t2 = t3 = 0.0
            for begin in range(0, steps, chunk):
                at = begin * LANES
                rows = (
                    ratio + i0 * stride + at,
                    ratio + i1 * stride + at,
                    ratio + i2 * stride + at,
                    ratio + i3 * stride + at,
                )
                q0, q1, q2, q3 = row_products(store, stay + at, move + at, rows, min(chunk, steps - begin))
                p0, p1, p2, p3 = p0 * q0, p1 * q1, p2 * q2, p3 * q3
                if far(p0) or far(p1) or far(p2) or far(p3):
                    t0, t1, t2, t3 = t0 + math.log(p0), t1 + math.log(p1), t2 + math.log(p2), t3 + math.log(p3)
                    p0 = p1 = p2 = p3 = 1.0
            keep(scratch, i0, p0, t0, power)
            if group + 1 < count:
                keep(scratch, i1, p1, t1, power)
            if group + 2 < count:
                keep(scratch, i2, p2, t2, power)
            if group + 3 < count:
                keep(scratch, i3, p3, t3, power)
    for i in range(units):
        if store[top + i] > LIMIT:
            at, plain = links[link, LOGITS] + row * stride, links[link, PLAIN] + i * stride
            logs[i] += power * softplus_change(store, at, plain, float(store[signs + i]), links[link, TARGETS])
        elif store[signs + i] < 0:
            logs[i] -= power * store[links[link, TOTAL] + i]


@njit
def keep(scratch, i, product, logarithm, power):
    scratch.logs[i] += power * logarithm
    if power > 0:
        scratch.products[i] *= product
    else:
        scratch.products[i] /= product


@njit
def entropy_units(store, links, link, row, signs, scratch):
    """For every unit: what turns the softplus changes of its targets into changes of their entropies, into logs."""
    stride, targets = links[link, STRIDE], links[link, TARGETS]
    blocks = stride // BLOCK
    logits = links[link, LOGITS] + row * stride
    stay, move = links[link, STAY] + row * stride, links[link, MOVE] + row * stride
    members, rows = scratch.members, scratch.rows
    now = set_logit_means(store, stay, move, rows, 0, 0, blocks, logits, logits, 0)
    for i in range(links[link, UNITS]):
        plain, sign = links[link, PLAIN] + i * stride, store[signs + i]
        members[0], rows[0] = i, links[link, RATIO] + i * stride
        if blocks_within_range(store, links, link, members, 1) > 0:
            ups = 1 if sign > 0 else 0
            scratch.logs[i] += now - set_logit_means(store, stay, move, rows, ups, 1, blocks, logits, plain, sign)
        else:
            scratch.logs[i] += entropy_change(store, logits, plain, float(sign), targets)
            scratch.logs[i] -= softplus_change(store, logits, plain, float(sign), targets)


@njit
def set_delta(store, links, link, signs, members, count, delta):
    """d of every target, for the flips of a set of units."""
    stride = links[link, STRIDE]
    fill(store, delta, 0, stride // LANES)
    for c in range(count):
        k = members[c]
        add_scaled(store, delta, links[link, PLAIN] + k * stride, store[signs + k], stride // LANES)


@njit
def set_rows(store, links, link, signs, members, count, rows):
    """Where the members' ratios are, those counted up first; how many these are, and the sum of TOTAL of the others."""
    stride, ratio, total = links[link, STRIDE], links[link, RATIO], links[link, TOTAL]
    ups, downs, taken_out = 0, count, 0.0
    for c in range(count):
        k = members[c]
        if store[signs + k] > 0:
            rows[ups] = ratio + k * stride
            ups += 1
        else:
            downs -= 1
            rows[downs] = ratio + k * stride
            taken_out += store[total + k]
    return ups, taken_out


@njit
def blocks_within_range(store, links, link, members, count):
    """How many blocks of targets one product of a set may span; 0: not even one."""
    bound = spread = 0.0
    for c in range(count):
        bound += store[links[link, TOP] + members[c]]
        spread += store[links[link, SPREAD] + members[c]]
    blocks = links[link, STRIDE] // BLOCK
    if spread <= SET_LIMIT:
        return blocks if bound * blocks <= LIMIT else int(LIMIT / bound)
    return min(blocks, int(SET_LIMIT / (BLOCK * bound)))


@njit
def set_logarithm(store, links, link, row, signs, members, count, rows, chunk):
    """The softplus change of all targets, from products of `chunk` blocks."""
    stride = links[link, STRIDE]
    blocks = stride // BLOCK
    stay, move = links[link, STAY] + row * stride, links[link, MOVE] + row * stride
    ups, taken_out = set_rows(store, links, link, signs, members, count, rows)
    if chunk >= blocks:
        return math.log(set_product(store, stay, move, rows, ups, count, blocks)) - taken_out
    total = -taken_out
    for begin in range(0, blocks, chunk):
        at = begin * BLOCK
        product = set_product(store, stay + at, move + at, rows, ups, count, min(chunk, blocks - begin))
        total += math.log(product)
        for c in range(count):
            rows[c] += chunk * BLOCK
    return total
