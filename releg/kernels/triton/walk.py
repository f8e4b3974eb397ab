"""Follows the sets of two or more changed units down the inference net, as one kernel for all layers below.

A program takes listed (row, unit) flips from a list whose length only the device knows, some at a time, until there are
none. Of each it keeps the change of one layer, and goes down while any unit changes:

    log p(z[m-1] | z[m])     the logits change by the sum of the changed units' weights, one row of a matrix each
    log p(z[m] | z[m+1])     linear in the change, with the old z[m+1]: the next layer's own first line corrects it
    -log q(z[m+1] | z[m])    the same sum of rows of the inference net's matrix
    z[m+1]                   unit k changes iff its logit moved beyond its margin
"""

import triton
import triton.language as tl


@triton.jit
def sum_of_rows(step, column, z, left, left_size, right, right_size, block: tl.constexpr):
    """step @ left and step @ right, of matrices with a row per unit: only the rows of units that change are read."""
    at_left, at_right = tl.zeros_like(step), tl.zeros_like(step)
    k = tl.min(tl.where(step != 0, column, block), axis=1)[:, None]  # the first unit that changes; block: none
    while tl.min(tl.min(k, axis=1), axis=0) < block:
        by = 1 - 2 * tl.load(z + k, mask=k < block, other=0.5)
        at_left += by * tl.load(left + k * left_size + column, mask=(k < block) & (column < left_size), other=0.0)
        at_right += by * tl.load(right + k * right_size + column, mask=(k < block) & (column < right_size), other=0.0)
        k = tl.min(tl.where((step != 0) & (column > k), column, block), axis=1)[:, None]
    return at_left, at_right


@triton.jit
def walk_kernel(
    listed, count, change, z, logits, r, margin, log_p, log_q, generative, inference, shape, total_units,
    block_pairs: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """Adds to `change` what follows from the sets of changed units of the listed flips of one layer.

    Args:
        listed: (N * units,) which flips, as row * units + unit; only the first `count` are read.
        count: (1,) how many.
        change: (N, units) of the flipped layer.
        z: (N, total_units) of all layers side by side; the same for the next five.
        logits: of q(z[m] | z[m-1]).
        r: logits of p(z[m] | z[m+1]), the prior's for the deepest layer.
        margin: by how much a unit's logit has to move before it changes.
        log_p: log p of every unit of z, given the layer below it.
        log_q: log q of every unit of z.
        generative: matrices (H[m], H[m-1]) of all layers m > 0, one after the other.
        inference: matrices (H[m-1], H[m]) of all layers m > 0.
        shape: (depth + 1, 3) per layer: its size, where it begins in z and where in the two lists of matrices; from the
            flipped layer on, and 0 for the layer that is missing after the deepest.
        total_units: of all layers.
        block_pairs: flips that are followed at the same time.
        block: no less than the largest layer.
    """
    column = tl.arange(0, block)[None, :]
    number, units = tl.load(count), tl.load(shape)
    stride = tl.num_programs(0) * block_pairs
    for start in tl.range(tl.program_id(0) * block_pairs, number, stride):
        place = start + tl.arange(0, block_pairs)
        pair = tl.load(listed + place, mask=place < number, other=0)
        unit = (pair % units)[:, None]
        base = (pair // units).to(tl.int64)[:, None] * total_units  # where the row begins
        above, above_size = tl.load(shape + 1), units
        size, begin, matrix = tl.load(shape + 3), tl.load(shape + 4), tl.load(shape + 5)
        next_layer = shape + 6
        there = (column < size) & (place < number)[:, None]
        s = 1 - 2 * tl.load(z + base + above + unit)
        delta = s * tl.load(inference + matrix + unit * size + column, mask=there, other=0.0)
        a = tl.load(logits + base + begin + column, mask=there, other=0.0)
        t = 1 - 2 * tl.load(z + base + begin + column, mask=there, other=0.0)
        far = tl.load(margin + base + begin + column, mask=there, other=float("inf"))
        step = tl.where(t * delta > far, t, 0.0)  # the change of z[m]
        slope = s * tl.load(generative + matrix + column * units + unit, mask=step != 0, other=0.0) - a - delta
        gain = step * slope
        before = tl.zeros_like(step)  # the change of z[m-1], as far as this line does not know it already
        # sums of log(1 + exp(-|logit|)) after the change, as products: their factors are at most 2
        curved_p, curved_q = before + 1, before + 1
        going = tl.max(tl.max(tl.abs(step), axis=1), axis=0)
        while going > 0:
            next_size, next_begin, next_matrix = tl.load(next_layer), tl.load(next_layer + 1), tl.load(next_layer + 2)
            moved_r, moved_a = sum_of_rows(
                step,
                column,
                z + base + begin,
                generative + matrix,
                above_size,
                inference + next_matrix,
                next_size,
                block,
            )
            in_above = column < above_size
            old_r = tl.load(r + base + above + column, mask=in_above, other=0.0)
            z_above = tl.load(z + base + above + column, mask=in_above, other=0.0) + before
            old = tl.load(log_p + base + above + column, mask=in_above, other=0.0) + before * old_r
            signed = (2 * z_above - 1) * (old_r + moved_r)
            gain += tl.minimum(signed, 0.0) - old
            curved_p *= 1 + tl.where(in_above, tl.exp(-tl.abs(signed)), 0.0)
            gain += step * tl.load(r + base + begin + column, mask=column < size, other=0.0)
            before = step
            if next_size > 0:
                in_next = column < next_size
                a = tl.load(logits + base + next_begin + column, mask=in_next, other=0.0) + moved_a
                z_next = tl.load(z + base + next_begin + column, mask=in_next, other=0.0)
                far = tl.load(margin + base + next_begin + column, mask=in_next, other=float("inf"))
                old = tl.load(log_q + base + next_begin + column, mask=in_next, other=0.0)
                t = 1 - 2 * z_next
                step = tl.where(t * moved_a > far, t, 0.0)
                signed = (2 * (z_next + step) - 1) * a
                gain += old - tl.minimum(signed, 0.0)
                curved_q *= 1 + tl.where(in_next, tl.exp(-tl.abs(signed)), 0.0)
            else:
                step = tl.zeros_like(step)
            next_layer += 3
            above, above_size, begin, size, matrix = begin, size, next_begin, next_size, next_matrix
            going = tl.max(tl.max(tl.abs(step), axis=1), axis=0)
        gain += tl.log(curved_q / curved_p)
        at = change + pair
        mask = place < number
        tl.store(at, tl.load(at, mask=mask) + tl.sum(gain, axis=1), mask=mask)
