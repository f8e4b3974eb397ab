"""Lower bounds of log p(x) by sampling: the elbo and the multi-sample (importance-weighted) bound.

Both are functions of the same log weights log p(x, z) - log q(z | x); elbo <= multi-sample bound <= log p(x).
`elbo(model, x, samples=10)` draws the weights itself; `elbo(weights)` takes those at hand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import overload

import torch
from torch import Tensor

from releg import bernoulli
from releg.sbn import SigmoidBeliefNet

ROWS_AT_ONCE = 2000  # keeps the pixels of one pass (rows x 784 floats) in the cache of an ordinary CPU


@torch.no_grad()
def log_weights(
    model: SigmoidBeliefNet,
    x: Tensor,
    samples: int,
    generator: torch.Generator | None = None,
    noise: Sequence[Tensor] | None = None,
) -> Tensor:
    """log p(x, z) - log q(z | x) for `samples` draws of z per row of x: (B, samples).

    Args:
        model: p and q.
        x: (B, data_size), binary.
        samples: draws of z per row.
        generator: of the noise that is drawn here.
        noise: uniform, (samples, B, H) per layer; drawn if not given.
    """
    if samples < 1:
        raise ValueError(f"samples is {samples}, expected at least 1; one draw of z per image is the smallest number")
    model.check_input(x)
    columns = []
    done = 0
    while done < samples:
        copies = min(samples - done, max(1, ROWS_AT_ONCE // max(1, len(x))))
        rows = x.repeat(copies, 1)  # (copies * B, data_size)
        given = None if noise is None else [layer[done : done + copies].flatten(0, 1) for layer in noise]
        path = model.infer(rows, model.draw_noise(rows, generator) if given is None else given)
        weights = model.log_p(rows, path.z) - bernoulli.total_log_prob(path.logits, path.z)
        columns.append(weights.view(copies, len(x)).T)
        done += copies
    return torch.cat(columns, dim=1)


@overload
def elbo(model: Tensor) -> Tensor: ...
@overload
def elbo(
    model: SigmoidBeliefNet,
    x: Tensor,
    samples: int = 1,
    generator: torch.Generator | None = None,
    noise: Sequence[Tensor] | None = None,
) -> Tensor: ...
def elbo(
    model: SigmoidBeliefNet | Tensor,
    x: Tensor | None = None,
    samples: int = 1,
    generator: torch.Generator | None = None,
    noise: Sequence[Tensor] | None = None,
) -> Tensor:
    """The mean of the single-sample bounds, (B,): of a model and images, or of log weights (B, samples)."""
    return _weights(model, x, samples, generator, noise).mean(dim=1)


@overload
def multi_sample(model: Tensor) -> Tensor: ...
@overload
def multi_sample(
    model: SigmoidBeliefNet,
    x: Tensor,
    samples: int = 1,
    generator: torch.Generator | None = None,
    noise: Sequence[Tensor] | None = None,
) -> Tensor: ...
def multi_sample(
    model: SigmoidBeliefNet | Tensor,
    x: Tensor | None = None,
    samples: int = 1,
    generator: torch.Generator | None = None,
    noise: Sequence[Tensor] | None = None,
) -> Tensor:
    """The log of the mean importance weight (Burda et al. 2016), (B,): of a model and images, or of log weights."""
    weights = _weights(model, x, samples, generator, noise)
    return weights.logsumexp(dim=1) - math.log(weights.shape[1])


def _weights(
    model: SigmoidBeliefNet | Tensor,
    x: Tensor | None,
    samples: int,
    generator: torch.Generator | None,
    noise: Sequence[Tensor] | None,
) -> Tensor:
    if isinstance(model, Tensor):
        return model
    if x is None:
        raise TypeError("x is missing, expected the images whose bound is wanted; give elbo(model, x, samples=10)")
    return log_weights(model, x, samples, generator, noise)
