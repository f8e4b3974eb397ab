"""Bitflip-1: one unit of every layer, chosen evenly, is flipped."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from releg.estimators.base import Estimate
from releg.estimators.parts.antithetic import Antithetic, branches
from releg.estimators.parts.flips import draw_choices, kept_differences, reweighted
from releg.estimators.parts.simulation import simulate
from releg.sbn import SigmoidBeliefNet
from releg.systematic_sampling import chosen, proportional


class Bitflip(Antithetic):
    """1[unit i is chosen] H (f1 - f0) d mean_i, one of a layer's H units being chosen, all with the same chance.

    Kunes, Yin, Land, Haviv, Pe'er & Tavare (2023), bitflip-1: its variance vanishes where DisARM's does not, as a mean
    approaches 0 or 1. Several layers as for DisARM: deeper ones are simulated from the flipped layer. Cost: one
    simulation, and one more from each layer on. Unbiased.
    """

    label = "bitflip-1"

    def draw_noise(self, model: SigmoidBeliefNet, x: Tensor, generator: torch.Generator | None = None) -> list[Tensor]:
        """The number that chooses the unit of each layer comes last."""
        return [*super().draw_noise(model, x, generator), *draw_choices(model, x, generator)]

    def estimate(self, model: SigmoidBeliefNet, x: Tensor, noise: Sequence[Tensor]) -> Estimate:
        """Estimate from one flipped unit per layer."""
        depth = len(model.layers)
        simulation = simulate(model, x, noise)
        gradients = []
        layers = zip(simulation.mean_slopes, branches(noise[:-depth], depth), noise[-depth:], strict=True)
        for layer, (slope, tail, choice) in enumerate(layers):
            inclusion = proportional(torch.ones_like(slope), 1)
            kept = chosen(inclusion, choice)
            differences = kept_differences(model, simulation, layer, kept, tail)
            gradients.append(reweighted(differences, slope, inclusion, kept))
        return simulation.answer(gradients, self.samples)
