"""ARM: augment, REINFORCE, merge."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from releg.estimators.base import Estimate
from releg.estimators.parts.antithetic import Antithetic, arm_gradient, opposites
from releg.estimators.parts.simulation import simulate
from releg.sbn import SigmoidBeliefNet


class Arm(Antithetic):
    """d elbo / d logits[l] = E[(f_l(opposite) - f_l(z)) (u - 1/2)], u the layer's noise, opposite = 1[1 - u < mean].

    Yin & Zhou (2019), equation 7, and section 2.3 for several layers. Cost: one simulation, plus one from each
    layer on. Unbiased.
    """

    label = "ARM"

    def estimate(self, model: SigmoidBeliefNet, x: Tensor, noise: Sequence[Tensor]) -> Estimate:
        """Compare each layer with its opposite."""
        simulation = simulate(model, x, noise)
        pairs = zip(opposites(model, simulation, noise), simulation.signals, simulation.path.noise, strict=True)
        return simulation.answer([arm_gradient(f, other.signal, u) for other, f, u in pairs], self.samples)
