"""A sample of Bernoulli units and its opposite: the formulas of ARM and DisARM for one layer."""

from __future__ import annotations

import torch
from torch import Tensor


def opposite_of(logits: Tensor, noise: Tensor) -> Tensor:
    """1[1 - noise < mean], where the sample is 1[noise < mean]: (N, H)."""
    return (1 - noise < torch.sigmoid(logits)).to(logits.dtype)


def arm_gradient(f: Tensor, f_opposite: Tensor, noise: Tensor) -> Tensor:
    """(f(opposite) - f(z)) (u - 1/2), u the noise: (N, H)."""
    return (f_opposite - f)[:, None] * (noise - 0.5)


def disarm_gradient(change: Tensor, z: Tensor, opposite: Tensor, logits: Tensor) -> Tensor:
    """(f(z) - f(opposite)) / 2 (z - opposite) sigmoid(|logits|), (N, H), zero where both agree.

    Args:
        change: (N,) f(z) - f(opposite).
        z: (N, H), binary.
        opposite: (N, H), binary.
        logits: (N, H).
    """
    return change[:, None] / 2 * (z - opposite) * torch.sigmoid(logits.abs())
