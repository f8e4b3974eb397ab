"""DisARM, also known as U2G: ARM with its noise integrated out."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from releg.estimators.base import Estimate
from releg.estimators.parts.antithetic import Antithetic, antithetic_gradient, opposites
from releg.estimators.parts.simulation import simulate
from releg.sbn import SigmoidBeliefNet


class DisArm(Antithetic):
    """d elbo / d logits[l] = E[(f_l(z) - f_l(opposite)) / 2 * (z - opposite) * sigmoid(|logits|)].

    Dong, Mnih & Tucker (2020), equation 6; the unbiased uniform gradient of Yin, Ho, Yan, Qian & Zhou (2020) is the
    same. It is the expectation of ARM given z and its opposite, so its variance is at most ARM's. Several layers as
    in their section 4.2. Cost: one simulation, plus one from each layer on. Unbiased.
    """

    label = "DisARM"

    def estimate(self, model: SigmoidBeliefNet, x: Tensor, noise: Sequence[Tensor]) -> Estimate:
        """Compare each layer with its opposite."""
        simulation = simulate(model, x, noise)
        path = simulation.path
        layers = zip(opposites(model, simulation, noise), simulation.signals, path.z, path.logits, strict=True)
        gradients = [antithetic_gradient(f - other.signal, z, other.z, a.detach()) for other, f, z, a in layers]
        return simulation.answer(gradients, self.samples)
