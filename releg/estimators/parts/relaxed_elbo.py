"""f along a path of variables that autograd can follow: what the biased estimators differentiate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from releg import bernoulli
from releg.estimators.parts.signals import Sampler
from releg.sbn import SigmoidBeliefNet


@dataclass(frozen=True)
class RelaxedPath:
    """f and the inference net's outputs, all in the graph."""

    f: Tensor  # (N,)
    logits: list[Tensor]  # (N, H) per layer


def relaxed_path(model: SigmoidBeliefNet, x: Tensor, noise: Sequence[Tensor], sample: Sampler) -> RelaxedPath:
    """Simulate with `sample` in place of the binary one; the log-probabilities are continued linearly in z."""
    model.check_noise(x, noise)
    z: list[Tensor] = []
    logits: list[Tensor] = []
    for net, layer_noise in zip(model.inference, noise, strict=True):
        logits.append(net(z[-1] if z else x - model.mean))
        z.append(sample(logits[-1], layer_noise))
    generated = zip(model.generative_logits(z), [x, *z], strict=True)
    log_p = [bernoulli.relaxed_log_prob(r, value).sum(-1) for r, value in generated]
    log_q = [bernoulli.relaxed_log_prob(a, value).sum(-1) for a, value in zip(logits, z, strict=True)]
    return RelaxedPath(torch.stack(log_p).sum(0) - torch.stack(log_q).sum(0), logits)
