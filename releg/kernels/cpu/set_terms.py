"""Direct terms of sets of flipped units: as those of single ones, with products of rows in place of rows."""

from __future__ import annotations

import math

import numpy as np

from releg.kernels.cpu.compile import inlined
from releg.kernels.cpu.layout import (
    INVERSE,
    LOGITS,
    MARGINS,
    MOVE,
    PLAIN,
    RATIO,
    SIGNS,
    STAY,
    STRIDE,
    TARGETS,
    THRESHOLDS,
    WIDTH,
)
from releg.kernels.cpu.simd import BLOCK, LANES, above_each, add_scaled, fill
from releg.kernels.cpu.simd_memory import get, put
from releg.kernels.cpu.simd_sets import combine_rows, set_logit_means, set_product, set_product_and_changes
from releg.kernels.cpu.terms import blocks_within_range, entropy_change, softplus_change


@inlined
def generative_change(store, layout, scratch, worker, row, link, signs, start, count):
    """The softplus changes of the layer below."""
    links, members = layout.links, scratch.members
    partial, ones = layout.spare[worker, 0], layout.spare[-1, 0]
    chunk = blocks_within_range(store, links, link, members, start, count)
    if chunk > 0:
        find_rows(store, links, link, scratch, signs, start, count)
        left = few_rows(store, links, link, scratch.rows, count, 8, partial, ones)
        return set_logarithm(store, links, link, row, scratch.rows, left, chunk)
    set_delta(store, links, link, signs, members, start, count, partial)
    logits = links[link, LOGITS] + row * links[link, STRIDE]
    return softplus_change(store, logits, partial, 1.0, links[link, TARGETS])


@inlined
def inference_change(store, layout, scratch, worker, row, layer, signs, start, count, entropy):
    """Softplus changes of the next layer, or changes of its entropies; which of its units change, into masks."""
    links, layers, members, link = layout.links, layout.layers, scratch.members, 2 * layer + 1
    partial, delta, ones = layout.spare[worker, 0], layout.spare[worker, 1], layout.spare[-1, 0]
    stride = links[link, STRIDE]
    blocks = stride // BLOCK
    stay, move = links[link, STAY] + row * stride, links[link, MOVE] + row * stride
    deeper = row * layers[layer + 1, WIDTH]
    deeper_signs, thresholds = layers[layer + 1, SIGNS] + deeper, layers[layer + 1, THRESHOLDS] + deeper
    logits = links[link, LOGITS] + row * stride
    scratch.masks[blocks] = 0  # the other half of the last word
    if blocks_within_range(store, links, link, members, start, count) >= blocks:
        find_rows(store, links, link, scratch, signs, start, count)
        left = few_rows(store, links, link, scratch.rows, count, 4 if entropy else 8, partial, ones)
        change = math.log(product_and_changes(store, stay, move, scratch.rows, left, blocks, thresholds, scratch.masks))
        if entropy:
            set_delta(store, links, link, signs, members, start, count, delta)
            change += set_logit_means(store, stay, move, (ones, ones, ones, ones), blocks, logits, logits, 0)
            rows = (scratch.rows[0], scratch.rows[1], scratch.rows[2], scratch.rows[3])
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
def set_delta(store, links, link, signs, members, start, count, delta):
    """d of every target, for the flips of a set of units."""
    stride = links[link, STRIDE]
    fill(store, delta, 0, stride // LANES)
    for c in range(start, start + count):
        k = members[c]
        add_scaled(store, delta, links[link, PLAIN] + k * stride, store[signs + k], stride // LANES)


@inlined
def find_rows(store, links, link, scratch, signs, start, count):
    """Where the ratios of a set's members are, into rows; without a branch, since signs cannot be foretold."""
    ratio, stride = links[link, RATIO], links[link, STRIDE]
    inverse = links[link, INVERSE] - ratio
    for c in range(count):
        k = np.int64(get(scratch.members, start + c))
        put(scratch.rows, c, ratio + k * stride + np.int64(get(store, signs + k) < 0) * inverse)


@inlined
def few_rows(store, links, link, rows, count, most, partial, ones):
    """Combine rows until there are no more than `most`, and let rows of ones follow; how many are left."""
    left = count
    while left > most:
        last = (rows[left - 1], rows[left - 2], rows[left - 3], rows[left - 4])
        combine_rows(store, partial, last, links[link, STRIDE] // BLOCK)
        left -= 3
        rows[left - 1] = partial
    rows[left] = rows[left + 1] = ones
    return left


@inlined
def set_logarithm(store, links, link, row, rows, count, chunk):
    """The softplus change of all targets, from products of `chunk` blocks."""
    stride = links[link, STRIDE]
    blocks = stride // BLOCK
    stay, move = links[link, STAY] + row * stride, links[link, MOVE] + row * stride
    total = 0.0
    for begin in range(0, blocks, chunk):
        total += math.log(product(store, stay, move, rows, count, begin * BLOCK, min(chunk, blocks - begin)))
    return total


@inlined
def product(store, stay, move, rows, count, at, blocks):
    """set_product of up to eight rows, from the target `at` on."""
    stay, move = stay + at, move + at
    r0, r1, r2, r3 = rows[0] + at, rows[1] + at, rows[2] + at, rows[3] + at
    if count <= 2:
        return set_product(store, stay, move, (r0, r1), blocks)
    if count <= 4:
        return set_product(store, stay, move, (r0, r1, r2, r3), blocks)
    r4, r5 = rows[4] + at, rows[5] + at
    if count <= 6:
        return set_product(store, stay, move, (r0, r1, r2, r3, r4, r5), blocks)
    return set_product(store, stay, move, (r0, r1, r2, r3, r4, r5, rows[6] + at, rows[7] + at), blocks)


@inlined
def product_and_changes(store, stay, move, rows, count, blocks, thresholds, masks):
    """set_product_and_changes of up to eight rows."""
    r0, r1, r2, r3 = rows[0], rows[1], rows[2], rows[3]
    if count <= 2:
        return set_product_and_changes(store, stay, move, (r0, r1), blocks, thresholds, masks)
    if count <= 4:
        return set_product_and_changes(store, stay, move, (r0, r1, r2, r3), blocks, thresholds, masks)
    r4, r5 = rows[4], rows[5]
    if count <= 6:
        return set_product_and_changes(store, stay, move, (r0, r1, r2, r3, r4, r5), blocks, thresholds, masks)
    eight = (r0, r1, r2, r3, r4, r5, rows[6], rows[7])
    return set_product_and_changes(store, stay, move, eight, blocks, thresholds, masks)
