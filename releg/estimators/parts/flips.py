"""Some flips instead of all: units chosen at random, and f1 - f0 of the chosen ones.

Unit i is kept with probability pi_i, and its answer divided by pi_i: the expectation stays. One uniform number per row
chooses all its units, by systematic sampling: with c_i = pi_1 + ... + pi_i, unit i is kept iff a whole number lies in
[c_(i-1) - u, c_i - u).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from releg.estimators.parts.signals import continued_signal
from releg.estimators.parts.simulation import Simulation
from releg.sbn import SigmoidBeliefNet


def draw_choices(model: SigmoidBeliefNet, x: Tensor, generator: torch.Generator | None) -> list[Tensor]:
    """The number that chooses units, (N, 1) per layer."""
    return [torch.rand(len(x), 1, generator=generator, dtype=model.mean.dtype, device=x.device) for _ in model.layers]


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


def reweighted(differences: Tensor, slopes: Tensor, inclusion: Tensor, kept: Tensor) -> Tensor:
    """1[kept] / pi times (f1 - f0) d mean / d logit, (N, H)."""
    return torch.where(kept, differences * slopes / torch.where(kept, inclusion, 1), 0)


@torch.no_grad()
def kept_differences(
    model: SigmoidBeliefNet, simulation: Simulation, layer: int, kept: Tensor, noise: Sequence[Tensor]
) -> Tensor:
    """f1 - f0 of the kept units of a layer, (N, H), zero elsewhere; noise (N, H) of every layer deeper than it."""
    path = simulation.path
    rows, units = kept.nonzero(as_tuple=True)
    z = path.z[layer][rows]
    old = z[torch.arange(len(rows), device=z.device), units]
    z[torch.arange(len(rows), device=z.device), units] = 1 - old
    tail = [values[rows] for values in noise]
    below, logits = path.parents()[layer][rows], path.logits[layer].detach()[rows]
    flipped = continued_signal(model, layer, below, logits, z, [*path.noise[: layer + 1], *tail])
    answer = torch.zeros_like(path.z[layer])
    answer[rows, units] = (1 - 2 * old) * (flipped - simulation.signals[layer][rows])
    return answer
