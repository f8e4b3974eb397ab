"""Local DisARM: the multi-sample bound, every path compared with its opposites."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from releg.checks import check_at_least
from releg.estimators.base import Estimate
from releg.estimators.parts.antithetic import Antithetic, antithetic_gradient, opposites
from releg.estimators.parts.multi_sample import bound_changes, multi_sample_answer
from releg.estimators.parts.simulation import simulate
from releg.sbn import SigmoidBeliefNet


class LocalDisArm(Antithetic):
    """(L(f^k) - L(g^k)) / 2 (z^k - opposite^k) sigmoid(|logits|) - w_k (z^k - mean^k), summed over paths k.

    L = log mean over k of exp(f^k) climbs the multi-sample bound with K samples, not the elbo, and is unbiased
    for that bound. L(f^k) - L(g^k) is the change of L when path k is replaced by its opposite, whose f is g^k: the
    mean of that with the other paths as they are and with all of them replaced. w_k is the normalised weight of path k.
    The local version of Dong, Mnih & Tucker (2020). Several layers as for DisARM. Cost: K simulations, and K
    more from each layer on.

    Args:
        samples: K, paths per image.
    """

    label = "Local DisARM"
    objective = "multi_sample"

    def __init__(self, samples: int = 2) -> None:
        super().__init__()
        check_at_least("samples", samples, 2, "with one path the bound is the elbo, and DisARM estimates its gradient")
        self.samples = samples

    def draw_noise(self, model: SigmoidBeliefNet, x: Tensor, generator: torch.Generator | None = None) -> list[Tensor]:
        """As for DisARM, for every path."""
        return super().draw_noise(model, x.repeat_interleave(self.samples, dim=0), generator)

    def evaluations(self, model: SigmoidBeliefNet) -> int:
        """The paths, and an opposite of each per layer."""
        return self.samples * super().evaluations(model)

    def estimate(self, model: SigmoidBeliefNet, x: Tensor, noise: Sequence[Tensor]) -> Estimate:
        """Compare every path with its opposite, layer by layer."""
        simulation = simulate(model, x, noise)
        path, f = simulation.path, simulation.signals[0].view(-1, self.samples)
        weights = f.softmax(1).flatten()  # (N,)
        gradients = []
        for layer, other in enumerate(opposites(model, simulation, noise)):
            # the terms of f above layer l are those of the path
            replaced = f + (other.signal - simulation.signals[layer]).view(-1, self.samples)
            change = bound_changes(f, replaced).flatten()
            pull = antithetic_gradient(change, path.z[layer], other.z, path.logits[layer].detach())
            gradients.append(self.samples * (pull - weights[:, None] * simulation.scores[layer]))
        return multi_sample_answer(simulation, weights, gradients, self.samples)
