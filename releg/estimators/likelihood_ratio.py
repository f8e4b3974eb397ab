"""The likelihood-ratio estimator with baselines: what the paper compares with ("LR")."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from releg import bernoulli
from releg.baselines import Baseline
from releg.estimators.base import Estimate, Estimator, surrogate_of
from releg.sbn import Path, SigmoidBeliefNet


class LikelihoodRatio(Estimator):
    """D elbo / d logits[l] = E[(f_l - b_l) (z[l] - mean[l])], f_l the terms of f that depend on layer l or deeper.

    Williams (1992); layer-local signals and baselines of NVIL, Mnih & Gregor (2014), sections 2.3 and 3.1; the
    formula before Theorem 1 in Tokui & Sato (2016). Cost: one simulation. Unbiased, except with variance normalisation.

    Args:
        baselines: parts applied in order, each to what the one before left. None: plain likelihood ratio. The paper's
            LR has InputDependent, then RunningAverage.
        samples: paths simulated per image; the estimate is their mean.
        variance_normalization: divide each layer's centred signal by max(1, its running standard deviation), as NVIL
            does and the paper does not. It rescales the gradient of the inference net, so it is not unbiased.
    """

    signal_variance: Tensor
    DECAY = 0.8  # of the running variance, as for the running average of the baselines

    def __init__(
        self, baselines: Sequence[Baseline] = (), samples: int = 1, variance_normalization: bool = False
    ) -> None:
        super().__init__()
        if samples < 1:
            raise ValueError(f"samples is {samples}, expected at least 1; one path per image is the paper's estimator")
        self.baselines = nn.ModuleList(baselines)
        self.samples = samples
        self.variance_normalization = variance_normalization
        self.unbiased = not variance_normalization
        self.register_buffer("signal_variance", torch.zeros(0))

    def attach(self, model: SigmoidBeliefNet, generator: torch.Generator | None = None) -> None:
        """Give every baseline its nets and averages."""
        for baseline in self._parts():
            baseline.attach(model, generator)
        self.signal_variance = torch.zeros(len(model.layers), dtype=model.mean.dtype, device=model.mean.device)

    def estimate(self, model: SigmoidBeliefNet, x: Tensor, noise: Sequence[Tensor]) -> Estimate:
        """One path per row; each layer's score times what its baselines leave of its signal."""
        path = model.infer(x, noise)
        log_p_terms = model.log_p_terms(x, path.z)
        log_p = torch.stack(log_p_terms).sum(0)
        with torch.no_grad():
            signals = layer_signals(log_p_terms, path.log_q_terms())
            scores = [bernoulli.score(a, z) for a, z in zip(path.logits, path.z, strict=True)]
        remainders = self._remainders(path, signals)
        weights = [self._normalize(layer, r.detach()) for layer, r in enumerate(remainders)]
        logit_grads = [w[:, None] * score for w, score in zip(weights, scores, strict=True)]
        squared = torch.stack(remainders).square().sum(0)  # (N,)
        return Estimate(
            elbo=signals[0].view(-1, self.samples).mean(1),
            surrogate=surrogate_of(log_p, path.logits, logit_grads, self.samples),
            logits=path.logits,
            auxiliary_loss=squared.view(-1, self.samples).mean(1) if squared.requires_grad else None,
            logit_grads=logit_grads,
        )

    def _parts(self) -> list[Baseline]:
        parts = [part for part in self.baselines if isinstance(part, Baseline)]
        assert len(parts) == len(self.baselines)
        return parts

    def _remainders(self, path: Path, signals: list[Tensor]) -> list[Tensor]:
        """f_l - b_l per layer, (N,)."""
        remainders = []
        for layer, (below, remainder) in enumerate(zip(path.layer_inputs(), signals, strict=True)):
            for part in self._parts():
                remainder = part.remainder(layer, below, remainder)
            remainders.append(remainder)
        return remainders

    def _normalize(self, layer: int, remainder: Tensor) -> Tensor:
        if not self.variance_normalization:
            return remainder
        scale = self.signal_variance[layer].sqrt().clamp(min=1)
        if self.training:
            self.signal_variance[layer].lerp_(remainder.var(unbiased=False), 1 - self.DECAY)
        return remainder / scale


def layer_signals(log_p_terms: list[Tensor], log_q_terms: list[Tensor]) -> list[Tensor]:
    """f_l = sum over m >= l of log p(z[m-1] | z[m]) - log q(z[m] | z[m-1]), plus the prior's term; z[-1] being x.

    What does not depend on layer l given the shallower layers only adds variance (NVIL, section 3.1).
    """
    signal = log_p_terms[-1].detach()
    signals = []
    for log_p, log_q in zip(reversed(log_p_terms[:-1]), reversed(log_q_terms), strict=True):
        signal = signal + log_p.detach() - log_q
        signals.append(signal)
    return signals[::-1]
