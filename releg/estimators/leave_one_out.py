"""REINFORCE with a leave-one-out baseline (RLOO)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from releg.estimators.base import Estimate, Estimator
from releg.estimators.parts.other_paths import less_others
from releg.estimators.parts.simulation import check_samples, simulate
from releg.sbn import SigmoidBeliefNet


class LeaveOneOut(Estimator):
    """d elbo / d logits[l] = E[mean over k of (f_l^k - mean of f_l^j over j != k) (z[l]^k - mean[l]^k)].

    Each of K independent paths is compared with the others. Kool, van Hoof & Welling (2019); Salimans & Knowles (2014),
    section 3. Cost: K simulations. Unbiased.

    Args:
        samples: K, paths per image.
    """

    label = "RLOO"

    def __init__(self, samples: int = 2) -> None:
        super().__init__()
        check_samples(samples, 2, "a path is compared with the others")
        self.samples = samples

    def estimate(self, model: SigmoidBeliefNet, x: Tensor, noise: Sequence[Tensor]) -> Estimate:
        """Multiply each layer's score by its signal minus that of the other paths."""
        simulation = simulate(model, x, noise)
        layers = zip(simulation.signals, simulation.scores, strict=True)
        gradients = [less_others(f.view(-1, self.samples)).flatten()[:, None] * score for f, score in layers]
        return simulation.answer(gradients, self.samples)
