"""Binary variables relaxed to [0, 1]: the concrete distribution, and its coupling with the binary sample.

With h = logit(mean) - logit(u), z = 1[h > 0] is the binary sample of noise u, and sigmoid(h / temperature) its
relaxation (Maddison et al. 2017; Jang et al. 2017). Appendix C of Tucker et al. (2017) draws another h given z.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from releg.estimators.parts.signals import Sampler


def hidden(logits: Tensor, noise: Tensor) -> Tensor:
    """h, positive where bernoulli.sample is 1; differentiable by the logits."""
    tiny = torch.finfo(noise.dtype).tiny
    return logits - noise.clamp(min=tiny).log() + torch.log1p(-noise)


def hidden_given(logits: Tensor, z: Tensor, noise: Tensor) -> Tensor:
    """H given the binary z, from fresh noise v: of uniform u in [0, mean) if z is 1, else in [mean, 1).

    Written so that neither u nor 1 - u is a difference of close numbers, also in saturated units.
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
