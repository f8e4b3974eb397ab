"""Some flips instead of all: units chosen at random, and f1 - f0 of the chosen ones.

Unit i is kept with probability pi_i and its answer is divided by pi_i, so the expectation is unchanged.
releg.systematic_sampling chooses the units.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from releg.estimators.parts.signals import continued_signal
from releg.estimators.parts.simulation import Simulation
from releg.sbn import SigmoidBeliefNet
from releg.uncompiled import uncompiled


def draw_choices(model: SigmoidBeliefNet, x: Tensor, generator: torch.Generator | None) -> list[Tensor]:
    """The number that chooses units, (N, 1) per layer."""
    return [torch.rand(len(x), 1, generator=generator, dtype=model.mean.dtype, device=x.device) for _ in model.layers]


def reweighted(differences: Tensor, slopes: Tensor, inclusion: Tensor, kept: Tensor) -> Tensor:
    """1[kept] / pi times (f1 - f0) d mean / d logit, (N, H)."""
    return torch.where(kept, differences * slopes / torch.where(kept, inclusion, 1), 0)


def clipped(logits: Tensor, flipped: Tensor, antithetic: Tensor) -> Tensor:
    """UGC: bitflip-1's answer where min(mean, 1 - mean) < 1 / (2 H), else DisARM's, (N, H)."""
    return torch.where(torch.sigmoid(-logits.abs()) < 1 / (2 * logits.shape[-1]), flipped, antithetic)


@uncompiled  # how many flips are kept decides the size of the arrays
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
