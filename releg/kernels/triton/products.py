"""The log products of all flips of a layer, as one kernel: log_product.py without its (rows, units, targets) arrays.

    out[b, i] = sum_j log(stay_bj + move_bj exp(s_bi w_ij)),    stay = sigmoid(-r), move = sigmoid(r)

A program has a tile of rows x units and walks over the targets in steps of a block. Each of its numbers is a product of
one factor per step: select, fused multiply-add, multiply, nothing else. The logarithm of a product is taken after as
many factors as the largest weight of the tile's units keeps in range, and at the end. Units whose weights' exponentials
leave the range are summed as softplus differences. Which of the two it is, and how many factors, is decided on the
device: nothing waits for it.
"""

import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from releg.kernels.triton.numerics import softplus_change

MOST_FACTORS = 1024  # per logarithm: no limit, as the layers of a net are smaller than that times a block of targets


class Factors(NamedTuple):
    """What the factors are made of, and how many of them fit the range."""

    stay: Tensor  # (N, J)
    move: Tensor  # (N, J)
    up: Tensor  # (I, J) exp of the weights
    down: Tensor  # (I, J) exp of minus the weights
    fitting: Tensor  # (I,) int32: factors that may be multiplied; 0: not even one


def factors_of(logits: Tensor, weight: Tensor) -> Factors:
    """The factors of all flips of the units of a weight matrix (I, J), for targets with logits (N, J)."""
    room = math.log(torch.finfo(weight.dtype).max) - 8
    fitting = (room / weight.abs().amax(1).clamp(min=room / MOST_FACTORS)).to(torch.int32)
    return Factors(torch.sigmoid(-logits), torch.sigmoid(logits), weight.exp(), (-weight).exp(), fitting)


@triton.jit
def times_factors(product, s, stay, move, up, down, at_row, at_unit, in_row, in_unit):
    """The product (rows, units, targets), times the factors of one block of targets; outside, factors are 1."""
    kept = tl.load(stay + at_row, mask=in_row, other=1.0)[:, None, :]
    moved = tl.load(move + at_row, mask=in_row, other=0.0)[:, None, :]
    grown = tl.load(up + at_unit, mask=in_unit, other=1.0)[None, :, :]
    shrunk = tl.load(down + at_unit, mask=in_unit, other=1.0)[None, :, :]
    return product * tl.fma(moved, tl.where(s[:, :, None] > 0, grown, shrunk), kept)


@triton.jit
def log_product_kernel(
    logits, weight, stay, move, up, down, fitting, sign, out, rows, units, targets,
    block_rows: tl.constexpr, block_units: tl.constexpr, block_targets: tl.constexpr,
):  # fmt: skip
    """One tile of rows x units of `log_products`."""
    row = (tl.program_id(0) * block_rows + tl.arange(0, block_rows)).to(tl.int64)
    unit = tl.program_id(1) * block_units + tl.arange(0, block_units)
    tile = row[:, None] * units + unit[None, :]
    inside = (row < rows)[:, None] & (unit < units)[None, :]
    s = tl.load(sign + tile, mask=inside, other=0.0)
    fits = tl.min(tl.load(fitting + unit, mask=unit < units, other=1024))
    product = tl.full((block_rows, block_units, block_targets), 1.0, dtype=out.dtype.element_ty)
    total = tl.zeros((block_rows, block_units), dtype=out.dtype.element_ty)
    taken = 0  # factors in the product
    for start in tl.range(0, targets, block_targets):
        target = start + tl.arange(0, block_targets)
        at_row = row[:, None] * targets + target[None, :]
        at_unit = unit[:, None] * targets + target[None, :]
        in_row = (row < rows)[:, None] & (target < targets)[None, :]
        in_unit = (unit < units)[:, None] & (target < targets)[None, :]
        if fits > 0:
            product = times_factors(product, s, stay, move, up, down, at_row, at_unit, in_row, in_unit)
            taken += 1
            if taken == fits:
                total += tl.sum(tl.log(product), axis=2)
                product = tl.full((block_rows, block_units, block_targets), 1.0, dtype=out.dtype.element_ty)
                taken = 0
        else:
            r = tl.load(logits + at_row, mask=in_row, other=0.0)
            w = tl.load(weight + at_unit, mask=in_unit, other=0.0)
            total += tl.sum(softplus_change(r[:, None, :], s[:, :, None] * w[None, :, :]), axis=2)
    total += tl.sum(tl.log(product), axis=2)
    tl.store(out + tile, total, mask=inside)
