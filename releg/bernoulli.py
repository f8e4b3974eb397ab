"""Numerics of one layer of Bernoulli units, given by its logits.

All functions are elementwise and keep the dtype and device of their input. They stay finite and accurate for logits of
any size: none of them subtracts two large numbers.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid


def sample(logits: Tensor, noise: Tensor) -> Tensor:
    """z = 1 iff noise < sigmoid(logits): the paper's reparameterisation of a Bernoulli variable (section 2)."""
    return (noise < torch.sigmoid(logits.detach())).to(logits.dtype)


def log_prob(logits: Tensor, z: Tensor) -> Tensor:
    """log q(z) for binary z. log sigmoid(±logits) has no cancellation, unlike z * logits - softplus(logits)."""
    return logsigmoid((2 * z - 1) * logits)


def relaxed_log_prob(logits: Tensor, z: Tensor) -> Tensor:
    """log q(z) continued linearly to z in [0, 1], for relaxations and Taylor expansions."""
    return z * logits + logsigmoid(-logits)


def variance(logits: Tensor) -> Tensor:
    """mean * (1 - mean) = d mean / d logit; sigmoid(-a) keeps 1 - mean exact when saturated."""
    return torch.sigmoid(logits) * torch.sigmoid(-logits)


def score(logits: Tensor, z: Tensor) -> Tensor:
    """d log q(z) / d logits = z - mean for binary z, without cancellation when the unit is saturated."""
    sign = 2 * z - 1
    return sign * torch.sigmoid(-sign * logits)


def total_log_prob(logits: Sequence[Tensor], z: Sequence[Tensor]) -> Tensor:
    """Log-probability of several layers, summed over all their units: (N,)."""
    return torch.stack([log_prob(a, value).sum(-1) for a, value in zip(logits, z, strict=True)]).sum(0)
