"""Local expectation gradient: sums over the values of each unit, with all other units fixed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from releg import bernoulli
from releg.baselines import Baseline, BaselineStack
from releg.estimators.base import Estimate, Estimator
from releg.estimators.parts.simulation import simulate
from releg.kernels import flip_differences
from releg.kernels.log_product import LogProduct
from releg.sbn import SigmoidBeliefNet, Trajectory
from releg.uncompiled import uncompiled

NUMBERS_AT_ONCE = 2**22  # of the (rows, units, deeper units) arrays


class LocalExpectation(Estimator):
    """d elbo / d logit_i = E[sum over k of q(z_i = k | all others) f_l(z_i = k) (k - mean_i)].

    Titsias & Lazaro-Gredilla (2015), equation 8: q given the Markov blanket is exact: it depends on the parents and
    the children of a unit. All other units stay fixed, whereas common random numbers simulate the deeper ones again.
    The two agree in the deepest layer, and at depth 1. Cost: one simulation, plus f for both values of every unit.
    Unbiased.

    Args:
        baselines: applied in order to f_l, as for the likelihood ratio. Above the deepest layer the probabilities of
            the values depend on the path, so f_l itself adds to the variance. Titsias & Lazaro-Gredilla have none.
    """

    label = "Local expectation"

    def __init__(self, baselines: Sequence[Baseline] = ()) -> None:
        super().__init__()
        self.baselines = BaselineStack(baselines)

    def attach(self, model: SigmoidBeliefNet, generator: torch.Generator | None = None) -> None:
        """Create the nets and averages of the baselines."""
        self.baselines.attach(model, generator)

    def evaluations(self, model: SigmoidBeliefNet) -> int:
        """The path, plus the other value of every unit."""
        return 1 + sum(model.layers)

    def estimate(self, model: SigmoidBeliefNet, x: Tensor, noise: Sequence[Tensor]) -> Estimate:
        """Get f1 - f0 from the engine, with noise under which no other unit can change."""
        simulation = simulate(model, x, noise)
        path = simulation.path
        with torch.no_grad():
            frozen = replace(path, noise=[1 - z for z in path.z])  # logit(noise) is infinite: nothing changes
            differences = flip_differences("auto", model, frozen, simulation.generative_logits)
        remainders = self.baselines.remainders(path, simulation.signals)
        layers = zip(remainders, differences, strict=True)
        gradients = [_gradient(model, path, layer, f.detach(), d) for layer, (f, d) in enumerate(layers)]
        return simulation.answer(gradients, self.samples, self.baselines.loss(remainders))


@torch.no_grad()
def _gradient(model: SigmoidBeliefNet, path: Trajectory, layer: int, signal: Tensor, difference: Tensor) -> Tensor:
    """Sum over k in {0, 1} of q(k) f_k (k - mean), (N, H). The signal is f_l minus a baseline."""
    prior = path.logits[layer].detach()
    if layer + 1 == len(model.layers):
        return difference * bernoulli.variance(prior)
    z, mean, posterior = path.z[layer], torch.sigmoid(prior), prior + _deeper_evidence(model, path, layer)
    f_one, f_zero = signal[:, None] + (1 - z) * difference, signal[:, None] - z * difference
    return torch.sigmoid(posterior) * f_one * (1 - mean) - torch.sigmoid(-posterior) * f_zero * mean


@uncompiled  # the largest weight decides how long the products are
def _deeper_evidence(model: SigmoidBeliefNet, path: Trajectory, layer: int) -> Tensor:
    """log q(z[l+1] | z_i = 1, others) - log q(z[l+1] | z_i = 0, others), (N, H)."""
    weight = model.inference[layer + 1].weight.detach().T  # (H, K)
    logits, sign = path.logits[layer + 1].detach(), 1 - 2 * path.z[layer]
    product = LogProduct(logits, weight)
    change = sign * (path.z[layer + 1] @ weight.T)  # of log q when the unit flips
    rows = max(1, NUMBERS_AT_ONCE // weight.numel())
    for start in range(0, len(change), rows):
        block = slice(start, start + rows)
        change[block] -= product(block, slice(None), sign[block])
    return sign * change
