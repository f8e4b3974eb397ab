"""Double control variates: leave-one-out, with f corrected by a Taylor term from the other paths."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from releg.estimators.base import Estimate, Estimator
from releg.estimators.parts.signals import continued_signal, derivative
from releg.estimators.parts.simulation import check_samples, simulate, squared
from releg.sbn import Path, SigmoidBeliefNet


class DoubleControl(Estimator):
    """d elbo / d logits[l] = E[mean over k of (F^k - mean of F^j over j != k) (z^k - mean^k) - alpha g^k d mean^k].

    F^k = f_l^k + alpha g^k (z^k - mean^k), where g^k is the mean over j != k of d f_l / d z at path j.
    Titsias & Shi (2022), section 3: the second control variate reduces the variance of the first, the leave-one-out
    mean. alpha is trained to reduce the variance of d elbo / d logits; here each layer has its own. The derivative
    of f_l holds deeper layers fixed. Cost: K simulations with derivatives. Unbiased.

    Args:
        samples: K, paths per image.
    """

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
        layers = zip(simulation.signals, simulation.scores, simulation.mean_slopes(), strict=True)
        for layer, (signal, score, by_logit) in enumerate(layers):
            slope = self._of_others(_slope(model, simulation.path, layer))
            corrected = signal + self.alpha[layer] * (slope * score).sum(-1)
            left = (corrected - self._of_others(corrected))[:, None] * score
            gradients.append(left - self.alpha[layer] * slope * by_logit)
        # the answer for an image is the mean over its paths: train alpha on the square of that mean
        means = [gradient.unflatten(0, (-1, self.samples)).mean(1) for gradient in gradients]
        auxiliary = squared(means).repeat_interleave(self.samples) if self.training else None
        return simulation.answer(gradients, self.samples, auxiliary)

    def _of_others(self, values: Tensor) -> Tensor:
        """For every path the mean over the other paths of its image, (N, ...)."""
        paths = values.unflatten(0, (-1, self.samples))
        return ((paths.sum(1, keepdim=True) - paths) / (self.samples - 1)).flatten(0, 1)


def _slope(model: SigmoidBeliefNet, path: Path, layer: int) -> Tensor:
    """d f_l / d z[l] along the path with deeper layers fixed, (N, H)."""
    deeper = {depth: z for depth, z in enumerate(path.z) if depth > layer}
    with torch.enable_grad():
        z = path.z[layer].clone().requires_grad_()
        below, logits = path.parents()[layer], path.logits[layer].detach()
        remaining = iter(deeper.values())
        signal = continued_signal(model, layer, below, logits, z, path.noise, lambda *_: next(remaining))
        return derivative(signal, z)
