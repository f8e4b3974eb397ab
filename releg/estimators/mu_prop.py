"""MuProp: the likelihood ratio with a mean-field Taylor expansion as its control variate."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from releg.baselines import Baseline, BaselineStack
from releg.estimators.base import Estimate, Estimator
from releg.estimators.parts.signals import continued_signal, derivative
from releg.estimators.parts.simulation import Simulation, simulate
from releg.sbn import SigmoidBeliefNet
from releg.uncompiled import uncompiled


class MuProp(Estimator):
    """d elbo / d logits[l] = E[(f_l - h_l - b_l) (z[l] - mean[l])] + g_l d mean / d logits.

    h_l = f_l(m) + g_l (z[l] - m) is the first-order expansion around m, the mean-field values of layer l (the mean of
    each layer given the mean of the layer before it), and g_l is the derivative of f_l at m. Gu, Levine, Sutskever &
    Mnih (2016), equations 5 and 9. Cost: one simulation, plus a mean-field one with derivatives from each layer on.
    Unbiased.

    Args:
        baselines: applied in order to what the expansion leaves; Gu et al. use those of NVIL.
    """

    label = "MuProp"

    def __init__(self, baselines: Sequence[Baseline] = ()) -> None:
        super().__init__()
        self.baselines = BaselineStack(baselines)

    def attach(self, model: SigmoidBeliefNet, generator: torch.Generator | None = None) -> None:
        """Create the nets and averages of the baselines."""
        self.baselines.attach(model, generator)

    def evaluations(self, model: SigmoidBeliefNet) -> int:
        """The path, plus the mean-field values from each layer on."""
        return 1 + len(model.layers)

    def estimate(self, model: SigmoidBeliefNet, x: Tensor, noise: Sequence[Tensor]) -> Estimate:
        """Subtract the expansion and the baselines, add the gradient of the expansion."""
        simulation = simulate(model, x, noise)
        slopes, left = _expand(model, simulation)
        remainders = self.baselines.remainders(simulation.path, left)
        layers = zip(remainders, simulation.scores, slopes, simulation.mean_slopes, strict=True)
        gradients = [r.detach()[:, None] * score + g * by_logit for r, score, g, by_logit in layers]
        return simulation.answer(gradients, self.samples, self.baselines.loss(remainders))


@uncompiled  # differentiates inside
def _expand(model: SigmoidBeliefNet, simulation: Simulation) -> tuple[list[Tensor], list[Tensor]]:
    """g_l, (N, H) per layer, and f_l - h_l, (N,) per layer."""
    path = simulation.path
    slopes, left = [], []
    below, values = path.x, path.centred
    for layer, signal in enumerate(simulation.signals):
        logits = model.inference[layer](values).detach()
        mean = torch.sigmoid(logits).requires_grad_()
        with torch.enable_grad():
            expanded = continued_signal(model, layer, below, logits, mean, path.noise, _mean_field)
            slope = derivative(expanded, mean)
        mean = mean.detach()
        slopes.append(slope)
        left.append(signal - expanded.detach() - (slope * (path.z[layer] - mean)).sum(-1))
        below = values = mean
    return slopes, left


def _mean_field(logits: Tensor, noise: Tensor) -> Tensor:
    return torch.sigmoid(logits)
