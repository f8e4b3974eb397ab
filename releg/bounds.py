"""Sampled lower bounds of log p(x): the elbo and the multi-sample (importance-weighted) bound.

Both are functions of the log weights log p(x, z) - log q(z | x); elbo <= multi-sample bound <= log p(x).
"""

import math

import torch
from torch import Tensor

from releg import bernoulli
from releg.sbn import SigmoidBeliefNet

ROWS_AT_ONCE = 2000  # keeps the pixels of one pass (rows x 784 floats) in the cache of an ordinary CPU


@torch.no_grad()
def log_weights(model: SigmoidBeliefNet, x: Tensor, samples: int, generator: torch.Generator | None = None) -> Tensor:
    """log p(x, z) - log q(z | x) for `samples` draws of z per row of x: (B, samples)."""
    if samples < 1:
        raise ValueError(f"samples is {samples}, expected at least 1; one draw of z per image is the smallest number")
    model.check_input(x)
    columns = []
    done = 0
    while done < samples:
        copies = min(samples - done, max(1, ROWS_AT_ONCE // max(1, len(x))))
        rows = x.repeat(copies, 1)  # (copies * B, data_size)
        path = model.infer(rows, model.draw_noise(rows, generator))
        weights = model.log_p(rows, path.z) - bernoulli.total_log_prob(path.logits, path.z)
        columns.append(weights.view(copies, len(x)).T)
        done += copies
    return torch.cat(columns, dim=1)


def elbo(weights: Tensor) -> Tensor:
    """The mean of the single-sample bounds, (B, samples) -> (B,)."""
    return weights.mean(dim=1)


def multi_sample(weights: Tensor) -> Tensor:
    """The log of the mean importance weight (Burda et al. 2016), (B, samples) -> (B,)."""
    return weights.logsumexp(dim=1) - math.log(weights.shape[1])
