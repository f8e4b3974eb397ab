"""The kernels as operators of torch, so that fake tensors, torch.compile and opcheck know them.

Each allocates its result, launches its kernels and returns without waiting for the device.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import torch
import triton
from torch import Tensor

from releg.kernels.triton.changes import change_kernel
from releg.kernels.triton.products import factors_of, log_product_kernel
from releg.kernels.triton.walk import walk_kernel

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # as it was when the kernels were decorated
WALKERS_PER_PROCESSOR = 16  # programs of the walk for each of the GPU's multiprocessors


class Tile(NamedTuple):
    """What one program works on."""

    rows: int
    units: int
    targets: int
    warps: int

    def grid(self, rows: int, units: int) -> tuple[int, int]:
        """Programs for that many rows and units."""
        return triton.cdiv(rows, self.rows), triton.cdiv(units, self.units)


# Without spilling registers, and enough programs for small layers. The interpreter pays per program.
GPU_TILES = {torch.float32: Tile(4, 4, 64, warps=2), torch.float64: Tile(2, 4, 64, warps=2)}
TILES = dict.fromkeys(GPU_TILES, Tile(16, 64, 256, warps=1)) if INTERPRETED else GPU_TILES
PAIRS = 64 if INTERPRETED else 1  # flips that a program of the walk follows at the same time


@torch.library.custom_op("releg::log_products", mutates_args=())
def log_products(logits: Tensor, weight: Tensor, sign: Tensor) -> Tensor:
    """sum_j softplus(r_bj + s_bi w_ij) - softplus(r_bj) for logits r (N, J), weight w (I, J) and sign s (N, I)."""
    logits, weight, sign = logits.contiguous(), weight.contiguous(), sign.contiguous()  # addresses are computed
    out = torch.empty_like(sign)
    if out.numel():
        tile = TILES[out.dtype]
        with torch.cuda.device_of(out):  # triton launches on the current device
            log_product_kernel[tile.grid(*sign.shape)](
                logits, weight, *factors_of(logits, weight), sign, out, *sign.shape, logits.shape[1], *tile[:3],
                num_warps=tile.warps, enable_fp_fusion=True,
            )  # fmt: skip
    return out


@log_products.register_fake
def _(logits: Tensor, weight: Tensor, sign: Tensor) -> Tensor:
    return torch.empty_like(sign, memory_format=torch.contiguous_format)


@torch.library.custom_op("releg::deeper_changes", mutates_args=())
def deeper_changes(
    sign: Tensor, single: Tensor, cross: Tensor, z: Tensor, logits: Tensor, r: Tensor, margin: Tensor,
    log_p: Tensor, log_q: Tensor, generative: Tensor, inference: Tensor, layers: Sequence[int], layer: int,
) -> Tensor:  # fmt: skip
    """Change of what follows from the units of the next layer that change with the flipped one, (N, H).

    Args:
        sign: (N, H) change of each flipped unit.
        single: (N, K) what follows from the change of one unit of the next layer.
        cross: (H, K) times both changes: what follows from the change of one unit because unit i is flipped.
        z: (N, all units), and so on: `walk_kernel` says what the others are.
        logits: of the inference net.
        r: of the generative net.
        margin: of every unit.
        log_p: of every unit.
        log_q: of every unit.
        generative: matrices of the generative net, in one row.
        inference: matrices of the inference net, in one row.
        layers: their sizes.
        layer: the flipped one.
    """
    sign, single, cross = sign.contiguous(), single.contiguous(), cross.contiguous()  # addresses are computed
    z, logits, r, margin, log_p, log_q = (packed.contiguous() for packed in (z, logits, r, margin, log_p, log_q))
    change = torch.empty_like(sign)
    if not change.numel():
        return change
    listed = torch.empty(sign.numel(), dtype=torch.int32, device=sign.device)  # every flip may be listed
    count = torch.zeros(1, dtype=torch.int32, device=sign.device)
    (rows, units), targets, begin, tile = sign.shape, layers[layer + 1], sum(layers[: layer + 1]), TILES[sign.dtype]
    z_next, far = (packed[:, begin : begin + targets] for packed in (z, margin))
    start = sum(above * size for above, size in pairwise(layers[: layer + 1]))
    weight = inference[start : start + units * targets].view(units, targets)
    block = triton.next_power_of_2(max(layers[layer:]))
    with torch.cuda.device_of(change):  # triton launches on the current device
        change_kernel[tile.grid(rows, units)](
            weight, sign, z_next, far, single, cross, change, listed, count, rows, units, targets, sum(layers),
            *tile[:3], num_warps=tile.warps, enable_fp_fusion=True,
        )  # fmt: skip
        walk_kernel[(walkers(change),)](
            listed, count, change, z, logits, r, margin, log_p, log_q, generative, inference,
            layer_table(tuple(layers), change.device)[layer:], sum(layers), PAIRS, block,
            num_warps=walk_warps(block, change.element_size()), enable_fp_fusion=True,
        )  # fmt: skip
    return change


@deeper_changes.register_fake
def _(
    sign: Tensor, single: Tensor, cross: Tensor, z: Tensor, logits: Tensor, r: Tensor, margin: Tensor,
    log_p: Tensor, log_q: Tensor, generative: Tensor, inference: Tensor, layers: Sequence[int], layer: int,
) -> Tensor:  # fmt: skip
    return torch.empty_like(sign, memory_format=torch.contiguous_format)


def walkers(change: Tensor) -> int:
    """Programs of the walk: as many as run at the same time, no more than there can be flips to follow."""
    if change.device.type != "cuda":
        return 1
    processors = torch.cuda.get_device_properties(change.device).multi_processor_count
    return min(change.numel(), WALKERS_PER_PROCESSOR * processors)


def walk_warps(block: int, itemsize: int) -> int:
    """Warps that share a flip: 8 numbers of a layer per thread, 2 in float64, as registers hold several layers."""
    return max(1, min(16, block // (256 if itemsize == 4 else 64)))


@cache
def layer_table(layers: tuple[int, ...], device: torch.device) -> Tensor:
    """(depth + 1, 3) per layer: size, place in rows of all layers, place of its matrix; cached, since a copy waits."""
    lines, begin, matrix = [], 0, 0
    for above, size in zip((0, *layers), layers, strict=False):
        lines.append([size, begin, matrix])
        begin, matrix = begin + size, matrix + above * size
    return torch.tensor([*lines, [0, 0, 0]], dtype=torch.int32, device=device)
