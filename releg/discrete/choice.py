"""Which flips to simulate when not all of them are: k of many at random, with known probabilities.

`chances` gives each flip a probability proportional to its weight, at most 1, k in sum; `choose` draws so that these
are exactly the probabilities of being chosen. A value divided by its chance is then unbiased (Horvitz & Thompson 1952).
"""

from __future__ import annotations

import torch
from torch import Tensor


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
    starts = torch.nn.functional.pad(ends[:, :-1], (1, 0))
    return torch.ceil(ends - uniform[:, None]) > torch.ceil(starts - uniform[:, None])
