"""The likelihood-ratio estimator with baselines, which the paper compares with ("LR")."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from releg.baselines import Baseline, BaselineStack, InputDependent, RunningAverage
from releg.checks import check_at_least
from releg.estimators.base import Estimate
from releg.estimators.parts.simulation import AlongPaths, Simulation
from releg.sbn import SigmoidBeliefNet

LABELS: dict[tuple[type[Baseline], ...], str] = {  # by the baselines
    (InputDependent, RunningAverage): "LR",
    (RunningAverage,): "LR, running average",
    (): "LR, no baseline",
}


class LikelihoodRatio(AlongPaths):
    """d elbo / d logits[l] = E[(f_l - b_l) (z[l] - mean[l])], f_l the terms of f that depend on layer l or deeper.

    Williams (1992); layer-local signals and baselines of NVIL, Mnih & Gregor (2014), sections 2.3 and 3.1; the
    formula before Theorem 1 in Tokui & Sato (2016). Cost: one simulation. Unbiased.

    Args:
        baselines: applied in order, each to the remainder of the one before; none for the plain likelihood ratio. The
            paper's LR has InputDependent, then RunningAverage.
        samples: paths simulated per image; the estimate is their mean.
    """

    def __init__(self, baselines: Sequence[Baseline] = (), samples: int = 1) -> None:
        super().__init__()
        check_at_least("samples", samples, 1, "one path per image is the paper's estimator")
        self.baselines = BaselineStack(baselines)
        self.samples = samples
        self.label = LABELS.get(tuple(map(type, baselines)), "LR, other baselines")

    def attach(self, model: SigmoidBeliefNet, generator: torch.Generator | None = None) -> None:
        """Create the nets and averages of the baselines."""
        self.baselines.attach(model, generator)

    def along(self, model: SigmoidBeliefNet, simulation: Simulation) -> Estimate:
        """Multiply each layer's score by its signal minus the baselines."""
        remainders = self.baselines.remainders(simulation.path, simulation.signals)
        layers = zip(remainders, simulation.scores, strict=True)
        logit_grads = [remainder.detach()[:, None] * score for remainder, score in layers]
        return simulation.answer(logit_grads, self.samples, self.baselines.loss(remainders))
