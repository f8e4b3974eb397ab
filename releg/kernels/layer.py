"""Log-probability and score of one layer of Bernoulli units, in one pass where a compiled one is at hand.

releg/bernoulli.py is the reference, and what is used for anything but float32 on the CPU outside autograd's graph.
"""

from __future__ import annotations

import torch
from torch import Tensor

from releg import bernoulli
from releg.kernels import has_numba


def log_prob_and_score(logits: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """Log q(z) of each row, (N,), in the graph of the logits, and the score z - mean, (N, H), in no graph."""
    if not _is_compiled_for(logits, z):
        return bernoulli.log_prob(logits, z).sum(-1), bernoulli.score(logits.detach(), z)
    from releg.kernels import elementwise  # numba is imported here, so that everything else works without it

    logits = logits.contiguous()
    terms, score = torch.empty_like(logits), torch.empty_like(logits)
    elementwise.run_on(elementwise.score_terms, logits, z, terms, score)
    return terms.sum(-1), score


def log_prob(logits: Tensor, z: Tensor) -> Tensor:
    """Log q(z) of each row, (N,)."""
    if not _is_compiled_for(logits, z):
        return bernoulli.log_prob(logits, z).sum(-1)
    from releg.kernels import elementwise

    logits = logits.contiguous()
    terms = torch.empty_like(logits)
    elementwise.run_on(elementwise.log_prob_terms, logits, z, terms)
    return terms.sum(-1)


def _is_compiled_for(logits: Tensor, z: Tensor) -> bool:
    return (
        logits.dtype == z.dtype == torch.float32
        and logits.device.type == z.device.type == "cpu"
        and logits.shape == z.shape
        and z.is_contiguous()
        and not (logits.requires_grad and torch.is_grad_enabled())
        and has_numba()
    )
