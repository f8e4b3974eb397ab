"""A discrete Stein operator: turns any function of binary z into one whose expectation under q(z) is zero.

    (A h)(z) = mean over i of q(z_i flipped | the others) (h(z with i flipped) - h(z))

It is the Gibbs operator of Shi et al. (2022) for independent units: a unit chosen evenly is drawn again. The chain
leaves q as it is, so E[A h] = 0.
"""

from __future__ import annotations

import torch
from torch import Tensor


def flip_probability(logits: Tensor, z: Tensor) -> Tensor:
    """q(the value that z_i does not have), (N, H)."""
    return torch.sigmoid((1 - 2 * z) * logits)


def stein(logits: Tensor, z: Tensor, h: Tensor, flipped: Tensor) -> Tensor:
    """(A h)(z), (N,); h (N,) at z, flipped (N, H) with each unit flipped."""
    return (flip_probability(logits, z) * (flipped - h[:, None])).mean(-1)


def stein_of_score(logits: Tensor, z: Tensor, score: Tensor, h: Tensor, flipped: Tensor) -> Tensor:
    """A applied to every component of h(z) (z - mean), (N, H).

    With unit i flipped, component j of z - mean changes only if j = i, by 1 - 2 z_i.
    """
    own = flip_probability(logits, z) * flipped * (1 - 2 * z) / z.shape[-1]
    return stein(logits, z, h, flipped)[:, None] * score + own


def flipped_taylor(slope: Tensor, z: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
    """A linear function of z with this slope (N, H) and the value `at` (N,) at z, and with each unit flipped (N, H)."""
    return at, at[:, None] + slope * (1 - 2 * z)
