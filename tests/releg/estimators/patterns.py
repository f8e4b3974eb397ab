"""With which probability K coupled samples of ARMS have which values."""

import itertools

import torch
from torch import Tensor


def pattern_probabilities(mean: Tensor, patterns: Tensor) -> Tensor:
    """P(z_1 ... z_K) of every pattern (R, K), by inclusion and exclusion of P(u_k < m for all k in S).

    That is max(1 - |S| (1 - m^(1/(K-1))), 0)^(K-1) for a point on the simplex; m is the rarer value's probability.
    """
    paths = patterns.shape[1]
    mirrored = mean > 0.5
    rarer = torch.where(mirrored[:, None], 1 - patterns, patterns)  # (R, K)
    gap = 1 - torch.minimum(mean, 1 - mean) ** (1 / (paths - 1))
    total = torch.zeros_like(mean)
    for subset in itertools.product((0.0, 1.0), repeat=paths):
        members = torch.tensor(subset, dtype=mean.dtype)
        holds = (members >= rarer).all(1)  # of supersets of the units that have the rarer value
        sign = (-1.0) ** (members.sum() - rarer.sum(1))
        total += torch.where(holds, sign * (1 - members.sum() * gap).clamp(min=0) ** (paths - 1), 0)
    return total
