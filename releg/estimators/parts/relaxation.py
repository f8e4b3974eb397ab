"""Binary variables relaxed to [0, 1], and f along a path of them, which autograd can differentiate.

With h = logit(mean) - logit(u), z = 1[h > 0] is the binary sample of noise u, and sigmoid(h / temperature) its
relaxation (Maddison et al. 2017; Jang et al. 2017). Appendix C of Tucker et al. (2017) draws another h given z.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from releg import bernoulli, categorical
from releg.estimators.parts.signals import Sampler
from releg.sbn import SigmoidBeliefNet


def check_temperature(temperature: float, usual: float) -> None:
    """Raise ValueError unless relaxed variables can have that temperature."""
    if temperature <= 0:
        raise ValueError(f"temperature is {temperature}, expected a positive number; the default is {usual:g}")


def hidden(logits: Tensor, noise: Tensor) -> Tensor:
    """h, positive where bernoulli.sample is 1; differentiable w.r.t. the logits."""
    tiny = torch.finfo(noise.dtype).tiny
    return logits - noise.clamp(min=tiny).log() + torch.log1p(-noise)


def hidden_given(logits: Tensor, z: Tensor, noise: Tensor) -> Tensor:
    """h given the binary z, from new noise v: u is uniform in [0, mean) if z is 1, else in [mean, 1).

    Neither u nor 1 - u is computed as a difference of close numbers, so saturated units stay exact.
    """
    v = noise.clamp(min=torch.finfo(noise.dtype).tiny)
    mean, rest = torch.sigmoid(logits), torch.sigmoid(-logits)
    if_one = v.log() + logsigmoid(logits) - torch.log((1 - v) + v * rest)
    if_zero = torch.log(mean + v * rest) - torch.log1p(-noise) - logsigmoid(-logits)
    return logits - torch.where(z == 1, if_one, if_zero)


def concrete(temperature: Tensor | float) -> Sampler:
    """The sampler of relaxed variables."""
    return lambda logits, noise: torch.sigmoid(hidden(logits, noise) / temperature)


def straight_through(logits: Tensor, noise: Tensor) -> Tensor:
    """The binary sample, with the derivative of its mean."""
    mean = torch.sigmoid(logits)
    return mean + ((noise < mean).to(mean.dtype) - mean).detach()


def categorical_concrete(logits: Tensor, noise: Tensor, temperature: float) -> Tensor:
    """softmax((logits + Gumbel noise) / temperature), for states on the last axis: a relaxed one-hot vector."""
    return torch.softmax((logits + categorical.gumbels(noise)) / temperature, -1)


def categorical_straight_through(logits: Tensor, noise: Tensor) -> Tensor:
    """The one-hot sample, with the derivative of its mean; noise (N, units) for logits (N, units, states)."""
    mean = torch.softmax(logits, -1)
    z = torch.nn.functional.one_hot(categorical.sample(logits.detach(), noise), logits.shape[-1])
    return mean + (z.to(mean.dtype) - mean).detach()


@dataclass(frozen=True)
class RelaxedPath:
    """f and the outputs of the inference net, all in the graph."""

    f: Tensor  # (N,)
    logits: list[Tensor]  # (N, H) per layer


def relaxed_path(model: SigmoidBeliefNet, x: Tensor, noise: Sequence[Tensor], sample: Sampler) -> RelaxedPath:
    """Simulate with `sample` instead of bernoulli.sample; the log-probabilities are linear in z."""
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
