"""The likelihood-ratio estimator with baselines: what the paper compares with ("LR")."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from releg.baselines import Baseline, BaselineStack
from releg.estimators.base import Estimate, Estimator
from releg.estimators.parts.simulation import check_samples, simulate
from releg.sbn import SigmoidBeliefNet


class LikelihoodRatio(Estimator):
    """D elbo / d logits[l] = E[(f_l - b_l) (z[l] - mean[l])], f_l the terms of f that depend on layer l or deeper.

    Williams (1992); layer-local signals and baselines of NVIL, Mnih & Gregor (2014), sections 2.3 and 3.1; the
    formula before Theorem 1 in Tokui & Sato (2016). Cost: one simulation. Unbiased, except with variance normalisation.

    Args:
        baselines: parts applied in order, each to what the one before left. None: plain likelihood ratio. The paper's
            LR has InputDependent, then RunningAverage.
        samples: paths simulated per image; the estimate is their mean.
        variance_normalization: divide each layer's centred signal by max(1, its running standard deviation), as NVIL
            does and the paper does not. It rescales the gradient of the inference net, so it is not unbiased. Where
            several ranks train together, the running variance is the mean of theirs.
    """

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
        """Give every baseline its nets and averages."""
        self.baselines.attach(model, generator)
        self.signal_variance = torch.zeros(len(model.layers), dtype=model.mean.dtype, device=model.mean.device)

    def estimate(self, model: SigmoidBeliefNet, x: Tensor, noise: Sequence[Tensor]) -> Estimate:
        """One path per row; each layer's score times what its baselines leave of its signal."""
        simulation = simulate(model, x, noise)
        remainders = self.baselines.remainders(simulation.path, simulation.signals)
        weights = [self._normalize(layer, r.detach()) for layer, r in enumerate(remainders)]
        logit_grads = [w[:, None] * score for w, score in zip(weights, simulation.scores, strict=True)]
        squared = torch.stack(remainders).square().sum(0)  # (N,)
        return simulation.answer(logit_grads, self.samples, squared if squared.requires_grad else None)

    def _normalize(self, layer: int, remainder: Tensor) -> Tensor:
        if not self.variance_normalization:
            return remainder
        scale = self.signal_variance[layer].sqrt().clamp(min=1)
        if self.training:
            self.signal_variance[layer].lerp_(remainder.var(unbiased=False), 1 - self.DECAY)
        return remainder / scale
