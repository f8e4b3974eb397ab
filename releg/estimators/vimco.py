"""VIMCO: the multi-sample bound with a leave-one-out learning signal."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from releg.checks import check_at_least
from releg.estimators.base import Estimate, Estimator
from releg.estimators.parts.multi_sample import multi_sample_answer, one_replaced
from releg.estimators.parts.simulation import simulate
from releg.sbn import SigmoidBeliefNet


class Vimco(Estimator):
    """d L / d logits = E[sum over k of (L - L_without_k - w_k) (z^k - mean^k)], L = log mean over k of exp(f^k).

    It climbs the multi-sample bound with K samples, not the elbo, and is unbiased for that bound. L_without_k
    replaces f^k by the mean of the others; w_k is the normalised weight of path k. Mnih & Rezende (2016), equations 8
    to 12, with the geometric mean. Cost: K simulations.

    Args:
        samples: K, paths per image.
    """

    label = "VIMCO"
    objective = "multi_sample"

    def __init__(self, samples: int = 2) -> None:
        super().__init__()
        check_at_least("samples", samples, 2, "a path is compared with the others")
        self.samples = samples

    def estimate(self, model: SigmoidBeliefNet, x: Tensor, noise: Sequence[Tensor]) -> Estimate:
        """Use one signal per path for all its layers: the bound is not a sum over layers."""
        simulation = simulate(model, x, noise)
        f = simulation.signals[0].view(-1, self.samples)
        weights = f.softmax(1).flatten()  # (N,)
        signals = self._signals(f).flatten()
        gradients = [self.samples * (signals - weights)[:, None] * score for score in simulation.scores]
        return multi_sample_answer(simulation, weights, gradients, self.samples)

    def _signals(self, f: Tensor) -> Tensor:
        """L - L_without_k, (B, K)."""
        others = (f.sum(1, keepdim=True) - f) / (self.samples - 1)  # mean of the others
        return f.logsumexp(1, keepdim=True) - one_replaced(f, others).logsumexp(2)
