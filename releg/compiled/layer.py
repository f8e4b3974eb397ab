"""Sample, log-probability and score of one layer of Bernoulli units, in one compiled pass where available.

releg/bernoulli.py is the reference; it is also used for everything but float32 on the CPU outside autograd's graph.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from releg import bernoulli
from releg.compiled import has_numba


class Sampled(NamedTuple):
    """A sample of one layer and its derivatives; only log_prob is part of a graph."""

    z: Tensor  # (N, H) binary
    log_prob: Tensor  # (N,) log q(z), in the graph of the logits
    score: Tensor  # (N, H) d log q(z) / d logits
    slope: Tensor  # (N, H) d mean / d logits


def sample_and_score(logits: Tensor, noise: Tensor) -> Sampled:
    """z = 1 iff noise < sigmoid(logits), with its log-probability, its score and the slope of its mean."""
    if not _is_compiled_for(logits, noise):
        z = bernoulli.sample(logits, noise)
        return Sampled(z, *log_prob_and_score(logits, z), bernoulli.variance(logits.detach()))
    from releg.compiled import elementwise  # numba is imported here, so that everything else works without it

    z, score, slope = (torch.empty_like(noise) for _ in range(3))
    sampled = Sampled(z, logits.new_empty(len(noise)), score, slope)
    elementwise.run_layer(logits, z, sampled.log_prob, score, noise, slope)
    return sampled


def sample_and_log_prob(logits: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """z and log q(z) of each row, (N,)."""
    if not _is_compiled_for(logits, noise):
        z = bernoulli.sample(logits, noise)
        return z, log_prob(logits, z)
    from releg.compiled import elementwise

    z, total = torch.empty_like(noise), logits.new_empty(len(noise))
    elementwise.run_layer(logits, z, total, noise=noise)
    return z, total


def log_prob_and_score(logits: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """log q(z) of each row, (N,), in the graph of the logits, and the score z - mean, (N, H), in no graph."""
    if not _is_compiled_for(logits, z):
        return bernoulli.log_prob(logits, z).sum(-1), bernoulli.score(logits.detach(), z)
    from releg.compiled import elementwise

    total, score = logits.new_empty(len(z)), torch.empty_like(z)
    elementwise.run_layer(logits, z, total, score)
    return total, score


def log_prob(logits: Tensor, z: Tensor) -> Tensor:
    """log q(z) of each row, (N,)."""
    if not _is_compiled_for(logits, z):
        return bernoulli.log_prob(logits, z).sum(-1)
    from releg.compiled import elementwise

    total = logits.new_empty(len(z))
    elementwise.run_layer(logits, z, total)
    return total


def _is_compiled_for(logits: Tensor, values: Tensor) -> bool:
    """Whether the compiled pass can be used: rows of logits may be strided, the values must be contiguous."""
    return (
        logits.dtype == values.dtype == torch.float32
        and logits.device.type == values.device.type == "cpu"
        and logits.shape == values.shape
        and logits.dim() == 2
        and logits.stride(1) == 1
        and values.is_contiguous()
        and not (logits.requires_grad and torch.is_grad_enabled())
        and has_numba()
    )
