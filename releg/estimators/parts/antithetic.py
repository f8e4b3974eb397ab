"""Antithetic pairs of samples, layer by layer, as ARM and DisARM need them.

The path's layer l is z = 1[u < mean]; its opposite is 1[1 - u < mean], with the same parents. Deeper layers are
simulated from the opposite with noise of their own, as in section 2.3 of Yin & Zhou (2019).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from releg import bernoulli
from releg.estimators.base import Estimator
from releg.estimators.parts.signals import continued_signal
from releg.estimators.parts.simulation import Simulation
from releg.sbn import SigmoidBeliefNet


@dataclass(frozen=True)
class Opposite:
    """The opposite of one layer of the path."""

    z: Tensor  # (N, H)
    signal: Tensor  # (N,) f_l


def draw_branches(model: SigmoidBeliefNet, x: Tensor, generator: torch.Generator | None) -> list[Tensor]:
    """Noise for the path, then for the layers deeper than each opposite, (N, H) each."""
    path = model.draw_noise(x, generator)
    branches = [model.draw_noise(x, generator)[layer + 1 :] for layer in range(len(model.layers) - 1)]
    return [*path, *(noise for branch in branches for noise in branch)]


def branches(noise: Sequence[Tensor], depth: int) -> list[list[Tensor]]:
    """What draw_branches drew for the layers deeper than each layer."""
    rest = iter(noise[depth:])
    return [[next(rest) for _ in range(depth - layer - 1)] for layer in range(depth)]


def opposite_of(logits: Tensor, noise: Tensor) -> Tensor:
    """1[1 - noise < mean], where the sample is 1[noise < mean]: (N, H)."""
    return (1 - noise < torch.sigmoid(logits)).to(logits.dtype)


def arm_gradient(f: Tensor, f_opposite: Tensor, noise: Tensor) -> Tensor:
    """(f(opposite) - f(z)) (u - 1/2), u the noise: (N, H)."""
    return (f_opposite - f)[:, None] * (noise - 0.5)


def antithetic_gradient(change: Tensor, z: Tensor, opposite: Tensor, logits: Tensor) -> Tensor:
    """(f(z) - f(opposite)) / 2 (z - opposite) sigmoid(|logits|), (N, H), zero where both agree.

    Args:
        change: (N,) f(z) - f(opposite).
        z: (N, H), binary.
        opposite: (N, H), binary.
        logits: (N, H).
    """
    return change[:, None] / 2 * (z - opposite) * torch.sigmoid(logits.abs())


@torch.no_grad()
def opposites(model: SigmoidBeliefNet, simulation: Simulation, noise: Sequence[Tensor]) -> list[Opposite]:
    """The opposite of every layer. The noise is from draw_branches."""
    path, answer = simulation.path, []
    layers = zip(path.parents(), path.logits, branches(noise, len(model.layers)), strict=True)
    for layer, (below, a, own) in enumerate(layers):
        logits = a.detach()
        z = opposite_of(logits, path.noise[layer])
        signal = continued_signal(model, layer, below, logits, z, [*path.noise[: layer + 1], *own], bernoulli.sample)
        answer.append(Opposite(z, signal))
    return answer


class Antithetic(Estimator):
    """An estimator that compares every layer of the path with its opposite."""

    def draw_noise(self, model: SigmoidBeliefNet, x: Tensor, generator: torch.Generator | None = None) -> list[Tensor]:
        """Noise for the path, and for the layers deeper than each opposite."""
        return draw_branches(model, x, generator)

    def evaluations(self, model: SigmoidBeliefNet) -> int:
        """The path, plus an opposite per layer."""
        return 1 + len(model.layers)
