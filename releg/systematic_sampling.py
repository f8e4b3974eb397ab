"""A few of many, chosen at random with known probabilities: what is divided by its probability stays unbiased.

One uniform number per row chooses all of the row's items, by systematic sampling: with c_i = pi_1 + ... + pi_i, item i
is chosen iff a whole number lies in [c_(i-1) - u, c_i - u).
"""

from __future__ import annotations

import torch
from torch import Tensor


def proportional(weights: Tensor, count: int) -> Tensor:
    """pi (N, H), proportional to non-negative weights but at most 1, with sum `count`; all 1 if that many are wanted.

    The largest weights are cut at 1 one by one until the rest, scaled to what is left of the count, stays below.
    """
    size = weights.shape[-1]
    if count >= size:
        return torch.ones_like(weights)
    ordered = weights.sort(-1, descending=True).values
    rest = ordered.flip(-1).cumsum(-1).flip(-1)  # sum of the t-th largest and all smaller
    left = count - torch.arange(size, dtype=weights.dtype, device=weights.device)  # after t are cut
    scales = left / rest.clamp(min=torch.finfo(weights.dtype).tiny)
    fits = (scales * ordered <= 1) & (left > 0)
    first = fits.to(torch.int8).argmax(-1, keepdim=True)
    return (scales.gather(-1, first) * weights).clamp(max=1)


def chosen(inclusion: Tensor, choice: Tensor) -> Tensor:
    """Whether each unit is kept, (N, H): unit i with probability inclusion_i, by the number `choice` (N, 1)."""
    upper = (inclusion.cumsum(-1) - choice).ceil()
    lower = torch.cat([(-choice).ceil(), upper[:, :-1]], dim=-1)
    return (upper > lower) | (inclusion >= 1)  # the second, since rounding could lose a unit that is always kept
