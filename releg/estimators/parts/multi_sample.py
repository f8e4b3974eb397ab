"""The multi-sample bound L = log mean over k of exp(f^k): how much a sample changes it, and answers that climb it."""

from __future__ import annotations

import torch
from torch import Tensor

from releg.estimators.base import Estimate, mean_over_paths, surrogate_of
from releg.estimators.parts.simulation import Simulation


def one_replaced(f: Tensor, replaced: Tensor) -> Tensor:
    """(B, K, K): row k is f with f^k alone replaced."""
    return f[:, None] + torch.diag_embed(replaced - f)


def bound_changes(f: Tensor, replaced: Tensor) -> Tensor:
    """L(f) - L(f with f^k replaced), averaged with L(replaced with f^k) - L(replaced): (B, K) for every k."""
    with_k_replaced = one_replaced(f, replaced).logsumexp(2)
    with_k_kept = one_replaced(replaced, f).logsumexp(2)
    changes = f.logsumexp(1, keepdim=True) - with_k_replaced + with_k_kept - replaced.logsumexp(1, keepdim=True)
    return changes / 2


def multi_sample_answer(simulation: Simulation, weights: Tensor, logit_grads: list[Tensor], samples: int) -> Estimate:
    """The estimate of the gradient of L. An answer averages over an image's paths, this gradient is their sum.

    Args:
        simulation: the paths, K consecutive rows per image.
        weights: (N,), the normalised weight of each path: its share in the gradient of the generative net.
        logit_grads: (N, H) per layer, K times the path's part of d L / d logits.
        samples: K, paths per image.
    """
    shares = samples * weights
    return Estimate(
        elbo=mean_over_paths(simulation.signals[0], samples),
        surrogate=surrogate_of(shares * simulation.log_p, simulation.path.logits, logit_grads, samples),
        logits=simulation.path.logits,
        logit_grads=logit_grads,
    )
