"""Common random numbers with only some of the flips."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from releg.checks import check_at_least
from releg.estimators.base import Estimate, Estimator
from releg.estimators.parts.flips import draw_choices, kept_differences, reweighted
from releg.estimators.parts.simulation import simulate
from releg.kernels import flip_differences
from releg.sbn import SigmoidBeliefNet
from releg.systematic_sampling import chosen, proportional

ENGINE_PAYS = 4  # flips per layer: so many one by one cost what all take through the CPU engine, at the paper's sizes


class Pruned(Estimator):
    """1[unit i is kept] / pi_i (f1 - f0) d mean_i / d logit_i, f_k simulated with z_i = k and the path's noise.

    Common random numbers, equation 2 of Tokui & Sato (2016), with `flips` units per layer kept at random, pi_i being
    proportional to mean_i (1 - mean_i) and at most 1: the pruning of stochastic triples, Arya, Schauer, Schafer &
    Rackauckas (2022), who keep one alternative of the whole program. Given the path, unit i's variance is
    (1/pi_i - 1) times its squared answer; with all flips this is common random numbers. Cost: one simulation, and
    `flips` more from each layer on; from 4 flips on that of common random numbers, whose variance is lower, so that
    such a setting is only good for studying the pruning. Unbiased.

    Args:
        flips: units kept per layer; all of a layer that has no more.
    """

    label = "Pruned CRN"

    def __init__(self, flips: int = 1) -> None:
        super().__init__()
        check_at_least("flips", flips, 1, "one flip per layer is the default")
        self.flips = flips

    def draw_noise(self, model: SigmoidBeliefNet, x: Tensor, generator: torch.Generator | None = None) -> list[Tensor]:
        """Noise of the path, then the number that chooses the units of each layer."""
        return [*model.draw_noise(x, generator), *draw_choices(model, x, generator)]

    def evaluations(self, model: SigmoidBeliefNet) -> int:
        """The path, and the flips that are kept; all flips if they come from the engine."""
        most = self.flips if self.flips < ENGINE_PAYS else max(model.layers)
        return 1 + sum(min(most, size) for size in model.layers)

    def estimate(self, model: SigmoidBeliefNet, x: Tensor, noise: Sequence[Tensor]) -> Estimate:
        """Choose, flip, reweight."""
        simulation = simulate(model, x, noise)
        path, slopes = simulation.path, simulation.mean_slopes
        with torch.no_grad():
            inclusion = [proportional(slope, self.flips) for slope in slopes]
            choices = noise[len(model.layers) :]
            kept = [chosen(pi, choice) for pi, choice in zip(inclusion, choices, strict=True)]
            if self.flips >= ENGINE_PAYS:
                differences = flip_differences("auto", model, path, simulation.generative_logits)
            else:
                tails = [path.noise[layer + 1 :] for layer in range(len(kept))]
                differences = [
                    kept_differences(model, simulation, layer, *each)
                    for layer, each in enumerate(zip(kept, tails, strict=True))
                ]
        layers = zip(differences, slopes, inclusion, kept, strict=True)
        return simulation.answer([reweighted(*layer) for layer in layers], self.samples)
