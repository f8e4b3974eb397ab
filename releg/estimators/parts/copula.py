"""K antithetic uniform numbers from the Dirichlet copula, and the gradient that ARMS makes of K coupled samples.

With d uniform on the simplex of K numbers, u_k = (1 - d_k)^(K-1) is uniform, and any two of them repel each other as
strongly as K exchangeable numbers can: P(u_j < p, u_k < p) = max(2 p^(1/(K-1)) - 1, 0)^(K-1). For p > 1/2 the numbers
are mirrored, u becoming 1 - u. K = 2 is the pair u and 1 - u.
"""

from __future__ import annotations

import torch
from torch import Tensor


def coupled_with(first: Tensor, noise: Tensor) -> Tensor:
    """u_2 ... u_K given u_1, (K-1, ...), from as many independent uniform numbers.

    Given d_1, the others are 1 - d_1 = u_1^(1/(K-1)) times a uniform point of the simplex of K - 1 numbers.

    Args:
        first: u_1.
        noise: (K-1, *shape of first), uniform.
    """
    tiny = torch.finfo(noise.dtype).tiny
    exponentials = -noise.clamp(min=tiny).log()
    weights = exponentials / exponentials.sum(0).clamp(min=tiny)
    return (1 - first ** (1 / len(noise)) * weights).clamp(min=0) ** len(noise)


def coupled_samples(logits: Tensor, first: Tensor, noise: Tensor) -> Tensor:
    """z_2 ... z_K, (K-1, N, H), antithetic to z_1 = 1[first < mean] and to each other; mirrored where mean > 1/2."""
    mirrored = logits > 0
    others = coupled_with(torch.where(mirrored, 1 - first, first), noise)
    # the rarer value is drawn where u is below its probability: z = 1 if mean <= 1/2, else z = 0
    rare = others < torch.sigmoid(-logits.abs())
    return (rare ^ mirrored).to(logits.dtype)


def both_given_one(logits: Tensor, paths: int) -> Tensor:
    """P(z_j and z_k have the rarer value) / P(z_j has it) = max(2 - m^(-1/(K-1)), 0)^(K-1), m = min(mean, 1 - mean)."""
    root = torch.exp(-torch.nn.functional.logsigmoid(-logits.abs()) / (paths - 1))  # m^(-1/(K-1)), at least 1
    return (2 - root).clamp(min=0) ** (paths - 1)


def coupled_gradient(f: Tensor, z: Tensor, logits: Tensor, both: Tensor) -> Tensor:
    """Mean over k of (f_k - mean f) (z_k - mean) K / (K-1) times (1 - m) / (1 - both), (N, H).

    The last factor is p (1-p) / (p - P(both are 1)) of Dimitriev & Zhou (2021), m = min(p, 1-p): 1 for independent
    samples, whose `both` is m.

    Args:
        f: (K, N) at K exchangeable samples.
        z: (K, N, H), binary.
        logits: (N, H).
        both: (N, H), the probability that another sample has the rarer value if one has.
    """
    paths = len(f)
    centred = (f - f.mean(0)) / (paths - 1)
    products = torch.einsum("kn,knh->nh", centred, z)  # sum of (f_k - mean f) mean vanishes
    return products * torch.sigmoid(logits.abs()) / (1 - both)
