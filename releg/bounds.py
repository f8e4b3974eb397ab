"""Lower bounds of log p(x) by sampling: the elbo and the multi-sample (importance-weighted) bound.

Both are functions of the same log weights log p(x, z) - log q(z | x): the elbo is their mean, the other bound
`log_mean_weight`. elbo <= multi-sample bound <= log p(x).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from releg import bernoulli
from releg.checks import check_at_least
from releg.sbn import SigmoidBeliefNet

ROWS_PER_DRAW = 2000  # rows whose noise is drawn together; the random numbers of a bound depend on it
ROWS_AT_ONCE = 500  # simulated together: as many rows of MNIST stay in the cache of an ordinary CPU


@torch.no_grad()
def log_weights(
    model: SigmoidBeliefNet,
    x: Tensor,
    samples: int,
    generator: torch.Generator | None = None,
    noise: Sequence[Tensor] | None = None,
    checked: bool = False,
) -> Tensor:
    """log p(x, z) - log q(z | x) for `samples` draws of z per row of x: (B, samples).

    Args:
        model: p and q.
        x: (B, data_size), binary.
        samples: draws of z per row.
        generator: of the noise that is drawn here.
        noise: uniform, (samples, B, H) per layer; drawn if not given.
        checked: whether x is known to be binary, so that nobody has to look.
    """
    check_at_least("samples", samples, 1, "one draw of z per image is the smallest number")
    if not checked:
        model.check_input(x)
    first = model.inference_logits(0, x)  # (B, H), the same for all draws
    columns = []
    done = 0
    while done < samples:
        copies = min(samples - done, max(1, ROWS_PER_DRAW // max(1, len(x))))
        rows = x[:1].expand(copies * len(x), -1)  # as many as there are paths
        if noise is None:
            drawn = model.draw_noise(rows, generator)
        else:
            drawn = [layer[done : done + copies].flatten(0, 1) for layer in noise]
            model.check_noise(rows, drawn)
        columns += _weights_of_copies(model, x, first, drawn, copies)
        done += copies
    return torch.cat(columns, dim=1)


def _weights_of_copies(
    model: SigmoidBeliefNet, x: Tensor, first: Tensor, noise: list[Tensor], copies: int
) -> list[Tensor]:
    """Log weights of copies of x, one after the other in the noise: blocks of columns, (B, some of the copies)."""
    together = max(1, ROWS_AT_ONCE // max(1, len(x)))
    blocks = []
    for start in range(0, copies, together):
        count = min(together, copies - start)
        rows = slice(start * len(x), (start + count) * len(x))
        values, logits = (x, first) if count == 1 else (x.repeat(count, 1), first.repeat(count, 1))
        weights = _log_weights(model, values, logits, [layer[rows] for layer in noise])
        blocks.append(weights.view(count, len(x)).T)
    return blocks


def _log_weights(model: SigmoidBeliefNet, x: Tensor, first: Tensor, noise: list[Tensor]) -> Tensor:
    """log p(x, z) - log q(z | x) of one path per row, (N,), given the logits of the first layer."""
    path = model.infer(x, noise, first)
    log_p, log_q = model.log_p(x, path.z), bernoulli.total_log_prob(path.logits, path.z)
    return log_p - log_q


def elbo(
    model: SigmoidBeliefNet,
    x: Tensor,
    samples: int = 1,
    generator: torch.Generator | None = None,
    noise: Sequence[Tensor] | None = None,
) -> Tensor:
    """The mean of the single-sample bounds, (B,)."""
    return log_weights(model, x, samples, generator, noise).mean(dim=1)


def multi_sample(
    model: SigmoidBeliefNet,
    x: Tensor,
    samples: int = 1,
    generator: torch.Generator | None = None,
    noise: Sequence[Tensor] | None = None,
) -> Tensor:
    """The log of the mean importance weight, (B,), Burda et al. (2016)."""
    return log_mean_weight(log_weights(model, x, samples, generator, noise))


def log_mean_weight(weights: Tensor) -> Tensor:
    """The multi-sample bound from log weights (B, samples)."""
    return weights.logsumexp(dim=1) - math.log(weights.shape[1])
