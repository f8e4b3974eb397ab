"""MuProp: the likelihood ratio of what a mean-field Taylor expansion leaves."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from releg.baselines import Baseline, BaselineStack
from releg.estimators.base import Estimate, Estimator
from releg.estimators.parts.signals import continued_signal, derivative
from releg.estimators.parts.simulation import Simulation, simulate
from releg.sbn import SigmoidBeliefNet


class MuProp(Estimator):
    """D elbo / d logits[l] = E[(f_l - h_l - b_l) (z[l] - mean[l])] + g_l d mean / d logits.

    h_l = f_l(m) + g_l (z[l] - m) is the first-order expansion around m, the mean-field values of layer l (every layer
    the mean given the mean of the one above it), and g_l the derivative of f_l there. Gu, Levine, Sutskever & Mnih
    (2016), equations 5 and 9. Cost: one simulation and its mean-field counterpart with derivatives. Unbiased.

    Args:
        baselines: parts applied in order to what the expansion leaves; the paper has those of NVIL.
    """

    def __init__(self, baselines: Sequence[Baseline] = ()) -> None:
        super().__init__()
        self.baselines = BaselineStack(baselines)

    def attach(self, model: SigmoidBeliefNet, generator: torch.Generator | None = None) -> None:
        """Give every baseline its nets and averages."""
        self.baselines.attach(model, generator)

    def evaluations(self, model: SigmoidBeliefNet) -> int:
        """The path, and the mean-field values from each layer on."""
        return 1 + len(model.layers)

    def estimate(self, model: SigmoidBeliefNet, x: Tensor, noise: Sequence[Tensor]) -> Estimate:
        """Expansion, baselines, and the expansion's own gradient."""
        simulation = simulate(model, x, noise)
        slopes, left = _expand(model, simulation)
        remainders = self.baselines.remainders(simulation.path, left)
        layers = zip(remainders, simulation.scores, slopes, simulation.mean_slopes(), strict=True)
        gradients = [r.detach()[:, None] * score + g * by_logit for r, score, g, by_logit in layers]
        squared = torch.stack(remainders).square().sum(0)
        return simulation.answer(gradients, self.samples, squared if squared.requires_grad else None)


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
