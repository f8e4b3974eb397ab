"""Direct terms of the CPU kernel: how the targets' distributions change when units are flipped.

softplus(r + d) - softplus(r) = log(sigmoid(-r) + sigmoid(r) exp(d)) has nothing but positive terms inside. So factors
are multiplied and few logarithms taken. Each factor lies between 1 and exp(d): how many fit into a product is known
from the weights alone. For units that are 1, sigmoid(-r) and sigmoid(r) change places, which takes exp(sum of weights)
out of the product: exp(W) serves both signs.

Numbers of the store are float32 or float64; sums and logarithms are float64.
"""

from __future__ import annotations

import math

import numpy as np

from releg.kernels.cpu.compile import inlined, step
from releg.kernels.cpu.layout import (
    FAR,
    INVERSE,
    LIMIT,
    LOGITS,
    MOVE,
    PLAIN,
    RATIO,
    SET_LIMIT,
    SPREAD,
    STAY,
    STRIDE,
    TARGETS,
    TOP,
    TOTAL,
    UNITS,
)
from releg.kernels.cpu.simd import BLOCK, LANES, row_products
from releg.kernels.cpu.simd_memory import get, put
from releg.kernels.cpu.simd_sets import set_logit_means


@step
def softplus_change(store, logits, delta, scale, count):
    """Sum of softplus(logits + scale * delta) - softplus(logits), term by term: right for weights of any size."""
    total = 0.0
    for j in range(count):
        before = np.float64(store[logits + j])
        after = before + scale * store[delta + j]
        total += max(after, 0.0) - max(before, 0.0) + math.log1p(math.exp(-abs(after)))
        total -= math.log1p(math.exp(-abs(before)))
    return total


@step
def entropy_change(store, logits, delta, scale, count):
    """Sum of entropy(logits + scale * delta) - entropy(logits), term by term."""
    total = 0.0
    for j in range(count):
        before = abs(np.float64(store[logits + j]))
        after = abs(store[logits + j] + scale * store[delta + j])
        decay = math.exp(-after)
        total += after * decay / (1.0 + decay) + math.log1p(decay)
        decay = math.exp(-before)
        total -= before * decay / (1.0 + decay) + math.log1p(decay)
    return total


@inlined
def chunk_of(bound, steps):
    """How many vectors can be multiplied into each lane."""
    return steps if bound * steps <= LIMIT else max(1, int(LIMIT / bound))


@inlined
def far(product):
    """Whether the running product could leave the range of float64."""
    return product > FAR or product < 1.0 / FAR


@inlined
def keep(scratch, i, product, logarithm, power):
    """Count the product (and what has been taken out of it) in f, or its inverse."""
    put(scratch.logs, i, get(scratch.logs, i) + power * logarithm)
    put(scratch.products, i, get(scratch.products, i) * (product if power > 0 else 1.0 / product))


@inlined
def sort_by_sign(store, signs, top, order, first, last):
    """Units whose weights are within range into order: those that are 0, and from its middle on those that are 1.

    Three more of each fill up the last group of four. Without a branch, since signs cannot be foretold.
    """
    half = order.size // 2
    plus, minus = 0, half
    for i in range(first, last):
        fits = np.int64(get(store, top + i) <= LIMIT)
        negative = np.int64(get(store, signs + i) < 0)
        put(order, plus, i)
        put(order, minus, i)
        plus += fits * (1 - negative)
        minus += fits * negative
    for at in range(3):
        put(order, plus + at, get(order, max(plus - 1, 0)))
        put(order, minus + at, get(order, max(minus - 1, half)))
    return plus, minus - half


@step
def multiply_units(store, links, link, row, signs, scratch, power, first, last):
    """For units first to last - 1: softplus changes of the targets, times power (+1 or -1), into products, logs."""
    stride = links[link, STRIDE]
    steps, top, ratio = (links[link, TARGETS] + LANES - 1) // LANES, links[link, TOP], links[link, RATIO]
    counts = sort_by_sign(store, signs, top, scratch.order, first, last)
    for side in range(2):
        stay = links[link, STAY + side] + row * stride  # sigmoid(-r), or sigmoid(r) for units that are 1
        move = links[link, MOVE - side] + row * stride
        order, count = side * (scratch.order.size // 2), counts[side]
        for group in range(0, count, 4):
            i0, i1 = get(scratch.order, order + group), get(scratch.order, order + group + 1)
            i2, i3 = get(scratch.order, order + group + 2), get(scratch.order, order + group + 3)
            larger = max(get(store, top + i0), get(store, top + i1))
            bound = np.float64(max(larger, max(get(store, top + i2), get(store, top + i3))))
            chunk = chunk_of(bound, steps)
            r0, r1, r2, r3 = ratio + i0 * stride, ratio + i1 * stride, ratio + i2 * stride, ratio + i3 * stride
            p0 = p1 = p2 = p3 = 1.0
            t0 = t1 = t2 = t3 = 0.0
            for begin in range(0, steps, chunk):
                at = begin * LANES
                rows = (r0 + at, r1 + at, r2 + at, r3 + at)
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
    for i in range(first, last):
        if get(store, top + i) > LIMIT:
            logits, plain = links[link, LOGITS] + row * stride, links[link, PLAIN] + i * stride
            change = softplus_change(store, logits, plain, np.float64(store[signs + i]), links[link, TARGETS])
            scratch.logs[i] += power * change
        else:
            total = np.int64(get(store, signs + i) < 0) * get(store, links[link, TOTAL] + i)
            put(scratch.logs, i, get(scratch.logs, i) - power * total)


@step
def entropy_units(store, links, link, row, signs, ones, scratch):
    """For every unit: what turns the softplus changes of its targets into changes of their entropies, into logs."""
    stride, targets = links[link, STRIDE], links[link, TARGETS]
    blocks = stride // BLOCK
    logits = links[link, LOGITS] + row * stride
    stay, move = links[link, STAY] + row * stride, links[link, MOVE] + row * stride
    now = set_logit_means(store, stay, move, (ones, ones, ones, ones), blocks, logits, logits, 0)
    for i in range(links[link, UNITS]):
        plain, sign = links[link, PLAIN] + i * stride, store[signs + i]
        ratio = links[link, RATIO if sign > 0 else INVERSE] + i * stride
        scratch.order[0] = i
        if blocks_within_range(store, links, link, scratch.order, 0, 1) >= blocks:
            rows = (ratio, ones, ones, ones)
            scratch.logs[i] += now - set_logit_means(store, stay, move, rows, blocks, logits, plain, sign)
        else:
            scratch.logs[i] += entropy_change(store, logits, plain, np.float64(sign), targets)
            scratch.logs[i] -= softplus_change(store, logits, plain, np.float64(sign), targets)


@inlined
def blocks_within_range(store, links, link, members, start, count):
    """How many blocks of targets one product of a set may span; 0: not even one."""
    units, blocks = links[link, UNITS], links[link, STRIDE] // BLOCK
    bound = np.float64(count) * get(store, links[link, TOP] + units)
    spread = np.float64(count) * get(store, links[link, SPREAD] + units)
    if bound * blocks <= LIMIT and spread <= SET_LIMIT:
        return blocks
    bound = spread = 0.0
    for c in range(start, start + count):
        bound += get(store, links[link, TOP] + get(members, c))
        spread += get(store, links[link, SPREAD] + get(members, c))
    if spread <= SET_LIMIT:
        return blocks if bound * blocks <= LIMIT else int(LIMIT / bound)
    return min(blocks, int(SET_LIMIT / (BLOCK * bound)))
