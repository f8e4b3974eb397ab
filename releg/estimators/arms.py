"""ARMS: K antithetic samples of every layer."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from releg.checks import check_at_least
from releg.estimators.base import Estimate, Estimator
from releg.estimators.parts.copula import both_given_one, coupled_gradient, coupled_samples
from releg.estimators.parts.layer_samples import draw_further, further_noise
from releg.estimators.parts.signals import continued_signal
from releg.estimators.parts.simulation import Simulation, simulate
from releg.sbn import SigmoidBeliefNet


class Arms(Estimator):
    """(f_k - mean f) (z_k - mean) K/(K-1) p(1-p)/(p - P11), averaged over K coupled samples z_k of layer l.

    f_k is f_l at sample k; P11 is the probability that two of them are 1. Dimitriev & Zhou (2021), ARMS-D: a Dirichlet
    copula makes the samples of a unit repel each other. K = 2 is DisARM; independent samples would give sibling RLOO.
    Several layers as for DisARM: the K samples of a layer share the path's parents, and deeper layers are simulated
    from each. Cost: one simulation, and K - 1 more from each layer on. Unbiased.

    Args:
        paths: K.
    """

    label = "ARMS"

    def __init__(self, paths: int = 4) -> None:
        super().__init__()
        check_at_least("paths", paths, 2, "a path is compared with the others")
        self.paths = paths

    def draw_noise(self, model: SigmoidBeliefNet, x: Tensor, generator: torch.Generator | None = None) -> list[Tensor]:
        """Noise of the path; then of each layer's further samples, and of the layers deeper than them."""
        return draw_further(model, x, self.paths - 1, generator)

    def evaluations(self, model: SigmoidBeliefNet) -> int:
        """The path, and the further samples of every layer."""
        return 1 + (self.paths - 1) * len(model.layers)

    def estimate(self, model: SigmoidBeliefNet, x: Tensor, noise: Sequence[Tensor]) -> Estimate:
        """Compare K coupled samples of each layer in turn."""
        simulation = simulate(model, x, noise)
        further = further_noise(noise, len(model.layers), self.paths - 1)
        with torch.no_grad():
            gradients = [self._gradient(model, simulation, layer, own) for layer, own in enumerate(further)]
        return simulation.answer(gradients, self.samples)

    def _gradient(
        self, model: SigmoidBeliefNet, simulation: Simulation, layer: int, further: list[list[Tensor]]
    ) -> Tensor:
        path = simulation.path
        logits, below = path.logits[layer].detach(), path.parents()[layer]
        others = self.others(logits, path.noise[layer], torch.stack([own for own, *_ in further]))
        f = [simulation.signals[layer]]
        for z, (_, *tail) in zip(others, further, strict=True):
            f.append(continued_signal(model, layer, below, logits, z, [*path.noise[: layer + 1], *tail]))
        samples = torch.cat([path.z[layer][None], others])  # (K, N, H)
        return coupled_gradient(torch.stack(f), samples, logits, self.both(logits))

    def others(self, logits: Tensor, first: Tensor, noise: Tensor) -> Tensor:
        """The further samples of a layer, (K-1, N, H), given the path's noise."""
        return coupled_samples(logits, first, noise)

    def both(self, logits: Tensor) -> Tensor:
        """The probability that another sample has a unit's rarer value if one has, (N, H)."""
        return both_given_one(logits, self.paths)
