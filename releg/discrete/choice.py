"""The gradient that flips give, and which of them to simulate when not all are: k of many, with known probabilities.

`chances` gives each flip a probability proportional to its weight, at most 1, k in sum; `choose` draws so that these
are exactly the probabilities of being chosen. A value divided by its chance is then unbiased (Horvitz & Thompson 1952).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import one_hot, pad

from releg import bernoulli, categorical


def gradient_of_mean(logits: Tensor, f_k: Tensor) -> Tensor:
    """sum_k f_k d q(k) / d logits, from f_k (N, units, states) up to a constant: like the logits.

    These are (N, units, states), or (N, units) logits of means: then it is (f_1 - f_0) mean (1 - mean).
    """
    if logits.dim() == 2:
        return (f_k[..., 1] - f_k[..., 0]) * bernoulli.variance(logits)
    return categorical.gradient_of_mean(f_k, logits)


@torch.no_grad()
def flip_chances(logits: Tensor, z: Tensor, flips: int) -> Tensor:
    """With which probability each unit's change to each state is simulated, (N, units, states); `flips` in sum.

    In proportion to the length of gradient_of_mean per change of f: q_k |one_hot(k) - q|. Sums are in float64, where
    the device has it.
    """
    if logits.dim() == 2:
        weights = bernoulli.variance(logits)[..., None].expand(-1, -1, 2)
    else:
        q = torch.softmax(logits, -1)
        weights = q * ((1 - q).square() + q.square().sum(-1, keepdim=True) - q.square()).sqrt()
    units, states = weights.shape[1:]
    if flips >= units * (states - 1):
        return torch.ones_like(weights)
    weights = weights * (1 - one_hot(z.long(), states))
    weights = weights if weights.device.type == "mps" else weights.double()
    return chances(weights.flatten(1), flips).view(weights.shape)


def chances(weights: Tensor, count: int) -> Tensor:
    """min(1, c * weights) with c such that every row sums to `count`: (N, J) like the weights, which are >= 0.

    A row with fewer than `count` positive weights gives all of these the chance 1.
    """
    size = weights.shape[-1]
    if count >= size:
        return torch.ones_like(weights)
    ordered, order = weights.sort(-1, descending=True)
    rest = ordered.flip(-1).cumsum(-1).flip(-1)  # of the weights from j on
    left = count - torch.arange(size, device=weights.device, dtype=weights.dtype)  # to choose if those before j are
    is_certain = (ordered * left >= rest) & (left > 0)  # c * weight >= 1 with c = left / rest
    certain = is_certain.long().cumprod(-1).bool()  # the heaviest ones, up to the first that is not
    number = certain.sum(-1, keepdim=True)
    scale = (count - number) / rest.gather(-1, number).clamp(min=torch.finfo(weights.dtype).tiny)
    sorted_chances = torch.where(certain, torch.ones_like(ordered), (scale * ordered).clamp(max=1))
    return torch.empty_like(weights).scatter_(-1, order, sorted_chances)


def choose(probability: Tensor, uniform: Tensor) -> Tensor:
    """Systematic sampling: which of (N, J) are chosen, by one uniform number per row, (N,).

    Item j occupies an interval as long as its probability, one after the other; it is chosen iff one of the points
    uniform, uniform + 1, ... lies in its interval. So as many are chosen as the probabilities sum to.
    """
    ends = probability.cumsum(-1)
    starts = pad(ends[:, :-1], (1, 0))
    inside = torch.ceil(ends - uniform[:, None]) > torch.ceil(starts - uniform[:, None])
    return inside | (probability >= 1)  # rounding must not lose one that is certain
