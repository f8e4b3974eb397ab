"""The likelihood ratio with the best constant baseline of every unit."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from releg.estimators.base import Estimate, Estimator
from releg.estimators.parts.simulation import check_samples, simulate
from releg.sbn import SigmoidBeliefNet


class OptimalBaseline(Estimator):
    """D elbo / d logit_i = E[(f_l - b_i) (z_i - mean_i)], b_i = E[f_l (z_i - mean_i)^2] / E[(z_i - mean_i)^2].

    The constant per image and unit with the least variance: the LR of Theorem 1's proof in Tokui & Sato (2016), which
    common random numbers still undercut; Weaver & Tao (2001). The expectations are taken over the image's other
    paths, which keeps it unbiased. Cost: K simulations. `releg variance` tells the bound itself as optimal_within.

    Args:
        samples: K, paths per image. The baseline of each has K - 1 to learn from.
    """

    def __init__(self, samples: int = 8) -> None:
        super().__init__()
        check_samples(samples, 2, "a path's baseline is learned from the others")
        self.samples = samples

    def estimate(self, model: SigmoidBeliefNet, x: Tensor, noise: Sequence[Tensor]) -> Estimate:
        """Every unit's score times what its own baseline leaves of the layer's signal."""
        simulation = simulate(model, x, noise)
        layers = zip(simulation.signals, simulation.scores, strict=True)
        gradients = [(f[:, None] - self._baselines(f, score)) * score for f, score in layers]
        return simulation.answer(gradients, self.samples)

    def _baselines(self, signal: Tensor, score: Tensor) -> Tensor:
        """(N, H) weighted means of the other paths' signals."""
        weight = score.square().unflatten(0, (-1, self.samples))  # (B, K, H)
        others = 1 - torch.eye(self.samples, dtype=score.dtype, device=score.device)  # sums without oneself, exactly
        weights, moments = others @ weight, others @ (weight * signal.view(-1, self.samples, 1))
        return (moments / weights.clamp(min=torch.finfo(score.dtype).tiny)).flatten(0, 1)  # all may vanish
