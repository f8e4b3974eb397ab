"""Double control variates: leave-one-out, with f corrected by a Taylor term from the other paths."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from releg.estimators.base import Estimate, Estimator, mean_over_paths
from releg.estimators.parts.other_paths import mean_of_others
from releg.estimators.parts.simulation import check_samples, simulate, squared
from releg.sbn import SigmoidBeliefNet


class DoubleControl(Estimator):
    """d elbo / d logits[l] = E[mean over k of (F^k - mean of F^j over j != k) (z^k - mean^k) - alpha g^k d mean^k].

    F^k = f_l^k + alpha g^k (z^k - mean^k), where g^k is the mean over j != k of d f_l / d z at path j.
    Titsias & Shi (2022), section 3: the second control variate reduces the variance of the first, the leave-one-out
    mean. alpha is trained to reduce the variance of d elbo / d logits; here each layer has its own. The derivative
    of f_l holds deeper layers fixed. Cost: K simulations with derivatives. Unbiased.

    Args:
        samples: K, paths per image.
    """

    label = "Double CV"

    def __init__(self, samples: int = 2) -> None:
        super().__init__()
        check_samples(samples, 2, "a path is compared with the others")
        self.samples = samples
        self.alpha = nn.Parameter(torch.zeros(0))

    def attach(self, model: SigmoidBeliefNet, generator: torch.Generator | None = None) -> None:
        """Create one alpha per layer, initially zero."""
        self.alpha = nn.Parameter(torch.zeros(len(model.layers), dtype=model.mean.dtype, device=model.mean.device))

    def estimate(self, model: SigmoidBeliefNet, x: Tensor, noise: Sequence[Tensor]) -> Estimate:
        """Apply both control variates, layer by layer."""
        simulation = simulate(model, x, noise)
        gradients = []
        layers = zip(simulation.signals, simulation.scores, simulation.mean_slopes, strict=True)
        for layer, (signal, score, by_logit) in enumerate(layers):
            slope = mean_of_others(simulation.frozen_slope(model, layer), self.samples)
            corrected = signal + self.alpha[layer] * (slope * score).sum(-1)
            left = (corrected - mean_of_others(corrected, self.samples))[:, None] * score
            gradients.append(left - self.alpha[layer] * slope * by_logit)
        # the answer for an image is the mean over its paths: train alpha on the square of that mean
        means = [mean_over_paths(gradient, self.samples) for gradient in gradients]
        auxiliary = squared(means).repeat_interleave(self.samples) if self.training else None
        return simulation.answer(gradients, self.samples, auxiliary)
