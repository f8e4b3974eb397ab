"""Double control variates: leave-one-out, with f corrected by a Taylor term from the other samples."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from releg import bernoulli
from releg.estimators.parts.layer_samples import LayerByLayer, LayerSamples
from releg.estimators.parts.other_paths import mean_of_others
from releg.sbn import SigmoidBeliefNet


class DoubleControl(LayerByLayer):
    """d elbo / d logits[l] = E[mean over k of (F^k - mean of F^j over j != k) (z^k - mean^k) - alpha g^k d mean^k].

    F^k = f_l^k + alpha g^k (z^k - mean^k), where g^k is the mean over j != k of d f_l / d z at sample j.
    Titsias & Shi (2022), section 3: the second control variate reduces the variance of the first, the leave-one-out
    mean. alpha, one per layer, is trained to reduce the variance of d elbo / d logits. The derivative of f_l holds
    deeper layers fixed. Cost: K simulations with derivatives; of siblings one, and K - 1 more from each layer on.
    Unbiased.

    Args:
        samples: K, of each layer for each image.
        siblings: all K start from the parents on one path, as published for hierarchies, or are those of K independent
            paths from x, which is cheaper.
    """

    label = "Double CV"
    learns = True

    def __init__(self, samples: int = 2, siblings: bool = False) -> None:
        super().__init__(samples, siblings)
        self.alpha = nn.Parameter(torch.zeros(0))

    def attach(self, model: SigmoidBeliefNet, generator: torch.Generator | None = None) -> None:
        """Create one alpha per layer, initially zero."""
        self.alpha = nn.Parameter(torch.zeros(len(model.layers), dtype=model.mean.dtype, device=model.mean.device))

    def layer_gradient(self, layer: int, drawn: LayerSamples) -> Tensor:
        """Apply both control variates."""
        slope, scores = mean_of_others(drawn.slopes, self.compared), drawn.scores
        corrected = drawn.f + self.alpha[layer] * (slope * scores).sum(-1)
        left = (corrected - mean_of_others(corrected, self.compared))[:, None] * scores
        return left - self.alpha[layer] * slope * bernoulli.variance(drawn.logits)
