"""The likelihood ratio with the best constant baseline for every unit."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from releg.checks import check_at_least
from releg.estimators.base import Estimate, Estimator
from releg.estimators.parts.simulation import simulate
from releg.sbn import SigmoidBeliefNet


class OptimalBaseline(Estimator):
    """d elbo / d logit_i = E[(f_l - b_i) (z_i - mean_i)], b_i = E[f_l (z_i - mean_i)^2] / E[(z_i - mean_i)^2].

    b_i is the constant per image and unit with the least variance, Weaver & Tao (2001). This is the LR in the proof of
    Theorem 1 of Tokui & Sato (2016); common random numbers have less variance still. The expectations are averages
    over the other paths of the image, which keeps the estimate unbiased. Cost: K simulations. optimal_within of
    `releg variance` is for the baseline that is best for the gradient w.r.t. the mean; in layer 1 that is b_i, exact.

    Args:
        samples: K, paths per image. Each baseline is an average over K - 1 of them.
    """

    label = "LR, optimal baseline"

    def __init__(self, samples: int = 8) -> None:
        super().__init__()
        check_at_least("samples", samples, 2, "a path's baseline is learned from the others")
        self.samples = samples

    def estimate(self, model: SigmoidBeliefNet, x: Tensor, noise: Sequence[Tensor]) -> Estimate:
        """Multiply each unit's score by its layer's signal minus its own baseline."""
        simulation = simulate(model, x, noise)
        layers = zip(simulation.signals, simulation.scores, strict=True)
        gradients = [(f[:, None] - self._baselines(f, score)) * score for f, score in layers]
        return simulation.answer(gradients, self.samples)

    def _baselines(self, signal: Tensor, score: Tensor) -> Tensor:
        """Weighted means of the signals of the other paths, (N, H)."""
        weight = score.square().unflatten(0, (-1, self.samples))  # (B, K, H)
        others = 1 - torch.eye(self.samples, dtype=score.dtype, device=score.device)  # exact sums without oneself
        weights, moments = others @ weight, others @ (weight * signal.view(-1, self.samples, 1))
        return (moments / weights.clamp(min=torch.finfo(score.dtype).tiny)).flatten(0, 1)  # all weights may be 0
