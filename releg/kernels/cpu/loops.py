"""The inner loops of the CPU kernel on vectors: exponentials and logarithms, products of factors, sums of rows."""

from __future__ import annotations

import math

import numpy as np

from releg.kernels.cpu.layout import BLOCK, TILE
from releg.kernels.cpu.vector import (
    LANES,
    block_bits,
    by_type,
    exponent,
    flip,
    fma,
    inlined,
    like,
    load,
    mantissa,
    polynomial_of,
    product,
    select,
    shift,
    signs,
    spread,
    store,
    total,
    widen,
)

_exponential_series = polynomial_of(
    [1 / math.factorial(n) for n in range(8)], [1 / math.factorial(n) for n in range(14)]
)
_logarithm_series = polynomial_of([2 / (2 * n + 1) for n in range(6)], [2 / (2 * n + 1) for n in range(12)])


@inlined
def exponential(x):
    """exp(x), right to the last bits: 2**k * series(x - k log 2), x cut off where the result would leave the range."""
    x = smaller(larger(x, by_type(x, -86.0, -707.0)), by_type(x, 88.0, 709.0))
    magic = by_type(x, 1.5 * 2**23, 1.5 * 2**52)  # adding it leaves k in the lowest bits
    shifted = fma(x, like(x, 1 / math.log(2)), magic)
    k = shifted - magic
    # log 2 in two parts: the first has zeros at its end, so that its product with k is exact
    part = fma(k, by_type(x, -0.693359375, -0.6931471803691238), x)
    part = fma(k, by_type(x, 0.693359375 - math.log(2), -1.9082149292705877e-10), part)
    return shift(_exponential_series(part), shifted)


@inlined
def logarithm(x):
    """log(x) of positive numbers: log m + k log 2 for x = m 2**k, and log m = 2 artanh((m - 1) / (m + 1))."""
    m, k, one = mantissa(x), exponent(x), like(x, 1.0)
    high = m > like(x, math.sqrt(2))
    m, k = select(high, m * like(x, 0.5), m), select(high, k + one, k)
    ratio = (m - one) / (m + one)
    return fma(k, like(x, math.log(2)), ratio * _logarithm_series(ratio * ratio))


@inlined
def larger(a, b):
    """The larger number of every lane; b where a is none."""
    return select(a > b, a, b)


@inlined
def smaller(a, b):
    """The smaller number of every lane; b where a is none."""
    return select(a < b, a, b)


@inlined
def magnitude(x):
    """|x| of every lane."""
    return flip(x, signs(x))


@inlined
def multiply_tile(table, lean, offsets, bits_of, begin, end):
    """The products of the factors 1 + s c T of targets begin to end - 1, for a tile of units and five rows.

    Args:
        table: (targets, TILE) T = tanh(w / 2).
        lean: (targets,) c = tanh(r / 2) of the first row.
        offsets: where those of the other rows begin.
        bits_of: where s is -1: both vectors of the first row, of the second, ...
        begin: the first target.
        end: the target behind the last one.
    """
    second, third, fourth, fifth = offsets
    sa0, sa1, sb0, sb1, sc0, sc1, sd0, sd1, se0, se1 = bits_of
    one = like(load(table, 0), 1.0)
    a0 = a1 = b0 = b1 = c0 = c1 = d0 = d1 = e0 = e1 = one
    for j in range(begin, end):
        t0, t1 = load(table, j * TILE), load(table, j * TILE + LANES)
        c = spread(lean[j])
        a0, a1 = a0 * fma(c, flip(t0, sa0), one), a1 * fma(c, flip(t1, sa1), one)
        c = spread(lean[second + j])
        b0, b1 = b0 * fma(c, flip(t0, sb0), one), b1 * fma(c, flip(t1, sb1), one)
        c = spread(lean[third + j])
        c0, c1 = c0 * fma(c, flip(t0, sc0), one), c1 * fma(c, flip(t1, sc1), one)
        c = spread(lean[fourth + j])
        d0, d1 = d0 * fma(c, flip(t0, sd0), one), d1 * fma(c, flip(t1, sd1), one)
        c = spread(lean[fifth + j])
        e0, e1 = e0 * fma(c, flip(t0, se0), one), e1 * fma(c, flip(t1, se1), one)
    return a0, a1, b0, b1, c0, c1, d0, d1, e0, e1


@inlined
def load_four(numbers, first, stride):
    """Four vectors, each `stride` numbers after the one before."""
    a, b = load(numbers, first), load(numbers, first + stride)
    return a, b, load(numbers, first + 2 * stride), load(numbers, first + 3 * stride)


@inlined
def load_block(numbers, offset):
    """A block of numbers: four vectors in a row."""
    return load_four(numbers, offset, LANES)


@inlined
def times_block(block, numbers, offset):
    """A block times the numbers from `offset` on."""
    (a, b, c, d), (e, f, g, h) = block, load_block(numbers, offset)
    return a * e, b * f, c * g, d * h


@inlined
def multiply_block(products, ratios, stay, move):
    """Multiply the factors sigmoid(-r) + sigmoid(r) exp(d) of a block of targets into products."""
    (p0, p1, p2, p3), (r0, r1, r2, r3), (s0, s1, s2, s3), (m0, m1, m2, m3) = products, ratios, stay, move
    return p0 * fma(m0, r0, s0), p1 * fma(m1, r1, s1), p2 * fma(m2, r2, s2), p3 * fma(m3, r3, s3)


@inlined
def beyond(ratios, turns):
    """Whether the ratios of a block of targets exceed those of their turns, a bit each."""
    (r0, r1, r2, r3), (t0, t1, t2, t3) = ratios, turns
    return block_bits(r0 > t0, r1 > t1, r2 > t2, r3 > t3)


@inlined
def multiply_two(stay, move, ratio, rows, first, second, begin, end, turns, downward, which):
    """The products of the factors of two sets of units over some blocks of targets: four vectors for each set.

    Args:
        stay: sigmoid(-r) of all targets.
        move: sigmoid(r).
        ratio: the table of ratios.
        rows: where the rows of members begin in it.
        first: of a set, the first of its members, how many it has, and a key.
        second: those of a set with at least as many members.
        begin: the first block.
        end: the block behind the last one.
        turns: the ratio beyond which each target changes.
        downward: a bit for each target that changes below it.
        which: whether the keys take a bit for each target that changes.
    """
    start, count, key = first
    other_start, other_count, other_key = second
    one = like(load(stay, 0), 1.0)
    p = q = one, one, one, one
    for block in range(begin, end):
        here = block * BLOCK
        r, o = load_block(ratio, rows[start] + here), load_block(ratio, rows[other_start] + here)
        for c in range(1, count):
            r, o = times_block(r, ratio, rows[start + c] + here), times_block(o, ratio, rows[other_start + c] + here)
        for c in range(count, other_count):
            o = times_block(o, ratio, rows[other_start + c] + here)
        if which:
            limits = load_block(turns, here)
            key[block] = beyond(r, limits) ^ downward[block]
            other_key[block] = beyond(o, limits) ^ downward[block]
        s, m = load_block(stay, here), load_block(move, here)
        p, q = multiply_block(p, r, s, m), multiply_block(q, o, s, m)
    return p, q


@inlined
def joined(products):
    """The products of the lanes of four vectors, in float64."""
    p0, p1, p2, p3 = products
    return (widen(p0) * widen(p1)) * (widen(p2) * widen(p3))


@inlined
def product_of(products):
    """The product of all lanes of four vectors, in float64."""
    return product(joined(products))


@inlined
def logarithm_of(products):
    """The logarithm of the product of all lanes, also where that would leave the range of float64."""
    return total(logarithm(joined(products)))


@inlined
def sum_rows(table, chosen, count):
    """The sum of the chosen rows of a tile of units: two vectors."""
    a0 = a1 = b0 = b1 = like(load(table, 0), 0.0)
    for n in range(0, count - 1, 2):  # two sums side by side: one alone waits for its last addition
        first, second = np.int64(chosen[n]) * TILE, np.int64(chosen[n + 1]) * TILE
        a0, a1 = a0 + load(table, first), a1 + load(table, first + LANES)
        b0, b1 = b0 + load(table, second), b1 + load(table, second + LANES)
    if count % 2 == 1:
        last = np.int64(chosen[count - 1]) * TILE
        a0, a1 = a0 + load(table, last), a1 + load(table, last + LANES)
    return a0 + b0, a1 + b1


@inlined
def add_row(to, row, scale, length):
    """to[j] += scale * row[j], over whole vectors."""
    for j in range(0, length, LANES):
        store(to, j, fma(like(load(row, j), scale), load(row, j), load(to, j)))


@inlined
def clear_row(to, length):
    """to[j] = 0."""
    for j in range(length):
        to[j] = 0
