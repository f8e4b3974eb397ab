"""UGC: for every unit DisARM or bitflip-1, whichever varies less at its mean."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from releg.estimators.base import Estimate
from releg.estimators.parts.antithetic import Antithetic, antithetic_gradient, branches, draw_branches, opposites
from releg.estimators.parts.flips import clipped, draw_choices, kept_differences, reweighted
from releg.estimators.parts.simulation import simulate
from releg.sbn import SigmoidBeliefNet
from releg.systematic_sampling import chosen, proportional


class Ugc(Antithetic):
    """Unit i's answer is that of bitflip-1 where min(mean_i, 1 - mean_i) < 1 / (2 H), else that of DisARM.

    Kunes, Yin, Land, Haviv, Pe'er & Tavare (2023), unbiased gradient variance clipping. Of a layer of H units, with f
    changing by D when unit i does, E[answer^2] is H m^2 (1-m)^2 D^2 for bitflip-1 and at least m (1-m)^2 D^2 / 2 for
    DisARM, m = min(mean, 1 - mean): they meet at m = 1 / (2 H). Several layers as for DisARM. Cost: one simulation, and
    two more from each layer on. Unbiased.
    """

    label = "UGC"

    def draw_noise(self, model: SigmoidBeliefNet, x: Tensor, generator: torch.Generator | None = None) -> list[Tensor]:
        """As for DisARM, then of the layers deeper than the flips, then the numbers that choose them."""
        noise = super().draw_noise(model, x, generator)
        after_flips = draw_branches(model, x, generator)[len(model.layers) :]
        return [*noise, *after_flips, *draw_choices(model, x, generator)]

    def evaluations(self, model: SigmoidBeliefNet) -> int:
        """The path, an opposite and a flip per layer."""
        return 1 + 2 * len(model.layers)

    def estimate(self, model: SigmoidBeliefNet, x: Tensor, noise: Sequence[Tensor]) -> Estimate:
        """Estimate from one opposite and one flipped unit per layer."""
        depth = len(model.layers)
        simulation = simulate(model, x, noise)
        path, slopes = simulation.path, simulation.mean_slopes
        further, choices = noise[depth:-depth], noise[-depth:]
        for_opposites, for_flips = further[: len(further) // 2], further[len(further) // 2 :]
        tails = branches([*path.noise, *for_flips], depth)
        gradients = []
        for layer, other in enumerate(opposites(model, simulation, [*path.noise, *for_opposites])):
            logits, change = path.logits[layer].detach(), simulation.signals[layer] - other.signal
            antithetic = antithetic_gradient(change, path.z[layer], other.z, logits)
            inclusion = proportional(torch.ones_like(logits), 1)
            kept = chosen(inclusion, choices[layer])
            differences = kept_differences(model, simulation, layer, kept, tails[layer])
            flipped = reweighted(differences, slopes[layer], inclusion, kept)
            gradients.append(clipped(logits, flipped, antithetic))
        return simulation.answer(gradients, self.samples)
