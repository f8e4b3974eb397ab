"""The likelihood-ratio estimator with baselines, which the paper compares with ("LR")."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from releg.baselines import Baseline, BaselineStack
from releg.estimators.base import Estimate
from releg.estimators.parts.simulation import AlongPaths, Simulation, check_samples
from releg.sbn import SigmoidBeliefNet


class LikelihoodRatio(AlongPaths):
    """d elbo / d logits[l] = E[(f_l - b_l) (z[l] - mean[l])], f_l the terms of f that depend on layer l or deeper.

    Williams (1992); layer-local signals and baselines of NVIL, Mnih & Gregor (2014), sections 2.3 and 3.1; the
    formula before Theorem 1 in Tokui & Sato (2016). Cost: one simulation. Unbiased, except with variance normalisation.

    Args:
        baselines: applied in order, each to the remainder of the one before; none for the plain likelihood ratio. The
            paper's LR has InputDependent, then RunningAverage.
        samples: paths simulated per image; the estimate is their mean.
        variance_normalization: divide each layer's centred signal by max(1, its running standard deviation), as NVIL
            does and the paper does not. It rescales the gradient of the inference net, so the estimate is biased. If
            several ranks train together, they average their running variances.
    """

    closed_form = True
    signal_variance: Tensor
    DECAY = 0.8  # of the running variance, as for the running average of the baselines

    def __init__(
        self, baselines: Sequence[Baseline] = (), samples: int = 1, variance_normalization: bool = False
    ) -> None:
        super().__init__()
        check_samples(samples, 1, "one path per image is the paper's estimator")
        self.baselines = BaselineStack(baselines)
        self.samples = samples
        self.variance_normalization = variance_normalization
        self.unbiased = not variance_normalization
        self.register_buffer("signal_variance", torch.zeros(0))

    def attach(self, model: SigmoidBeliefNet, generator: torch.Generator | None = None) -> None:
        """Create the nets and averages of the baselines."""
        self.baselines.attach(model, generator)
        self.signal_variance = torch.zeros(len(model.layers), dtype=model.mean.dtype, device=model.mean.device)

    def along(self, model: SigmoidBeliefNet, simulation: Simulation) -> Estimate:
        """Multiply each layer's score by its signal minus the baselines."""
        remainders = self.baselines.remainders(simulation.path, simulation.signals)
        weights = [self._normalize(layer, r.detach()) for layer, r in enumerate(remainders)]
        logit_grads = [w[:, None] * score for w, score in zip(weights, simulation.scores, strict=True)]
        return simulation.answer(logit_grads, self.samples, self.baselines.loss(remainders))

    def _normalize(self, layer: int, remainder: Tensor) -> Tensor:
        if not self.variance_normalization:
            return remainder
        scale = self.signal_variance[layer].sqrt().clamp(min=1)
        if self.training:
            self.signal_variance[layer].lerp_(remainder.var(unbiased=False), 1 - self.DECAY)
        return remainder / scale
