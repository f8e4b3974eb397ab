"""A discrete Stein operator: turns any function of z into one whose expectation under q(z) is zero.

    (A h)(z) = mean over units i of the sum over other values k of q(z_i = k) (h(z with z_i = k) - h(z))

It is the Gibbs operator of Shi et al. (2022) for independent units: choose a unit uniformly and resample it. This
leaves q unchanged, so E[A h] = 0. For binary units, z and all arrays of changes are (N, H): a unit has one other value.
For categorical units, z is one-hot and the changes are (N, H, states): the change to the present value has weight zero.
"""

from __future__ import annotations

import torch
from torch import Tensor


def change_chances(logits: Tensor, z: Tensor) -> Tensor:
    """q of the value that a unit does not have, for every change."""
    if z.dim() == 2:
        return torch.sigmoid((1 - 2 * z) * logits)
    return torch.softmax(logits, -1) * (1 - z)


def along_changes(slope: Tensor, z: Tensor) -> Tensor:
    """slope * (new value - old value) of every change; the slope is like z."""
    if z.dim() == 2:
        return slope * (1 - 2 * z)
    return slope - (slope * z).sum(-1, keepdim=True)


def sum_of_changes(weights: Tensor, z: Tensor) -> Tensor:
    """Sum over the changes of a unit of weight * (new value - old value), like z; keeping the value weighs zero."""
    if z.dim() == 2:
        return weights * (1 - 2 * z)
    return weights - z * weights.sum(-1, keepdim=True)


def stein(logits: Tensor, z: Tensor, h: Tensor, changed: Tensor) -> Tensor:
    """(A h)(z), (N,); h (N,) at z, changed after each change."""
    change = changed - h.view(-1, *[1] * (changed.dim() - 1))
    return (change_chances(logits, z) * change).flatten(1).sum(1) / z.shape[1]


def stein_of_score(logits: Tensor, z: Tensor, score: Tensor, h: Tensor, changed: Tensor) -> Tensor:
    """A applied to every component of h(z) (z - mean), like z.

    With unit i changed, component j of z - mean changes only if j = i.
    """
    own = sum_of_changes(change_chances(logits, z) * changed, z) / z.shape[1]
    return stein(logits, z, h, changed).view(-1, *[1] * (z.dim() - 1)) * score + own
