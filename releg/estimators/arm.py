"""ARM: augment, REINFORCE, merge."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from releg.antithetic import draw_branches, opposites
from releg.estimators.base import Estimate, Estimator
from releg.sbn import SigmoidBeliefNet
from releg.simulation import simulate


class Arm(Estimator):
    """D elbo / d logits[l] = E[(f_l(opposite) - f_l(z)) (u - 1/2)], u the layer's noise, opposite = 1[1 - u < mean].

    Yin & Zhou (2019), equation 7, and section 2.3 for several layers. Cost: one simulation, and one more from each
    layer on. Unbiased.

    Args:
        shared_noise: simulate the layers below an opposite with the path's noise instead of noise of their own. The
            text has the latter; the former is also unbiased, and its variance lower.
    """

    def __init__(self, shared_noise: bool = False) -> None:
        super().__init__()
        self.shared_noise = shared_noise

    def draw_noise(self, model: SigmoidBeliefNet, x: Tensor, generator: torch.Generator | None = None) -> list[Tensor]:
        """Noise of the path and, unless it is shared, of what is simulated below each opposite."""
        return model.draw_noise(x, generator) if self.shared_noise else draw_branches(model, x, generator)

    def evaluations(self, model: SigmoidBeliefNet) -> int:
        """The path, and an opposite per layer."""
        return 1 + len(model.layers)

    def estimate(self, model: SigmoidBeliefNet, x: Tensor, noise: Sequence[Tensor]) -> Estimate:
        """One opposite per layer."""
        simulation = simulate(model, x, noise)
        pairs = zip(opposites(model, simulation, noise), simulation.signals, simulation.path.noise, strict=True)
        return simulation.answer([(other.signal - f)[:, None] * (u - 0.5) for other, f, u in pairs], self.samples)
