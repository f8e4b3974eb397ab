"""K samples of a layer for each image, and estimators of one factorised layer, applied to every layer.

Given the sample of its parents a layer is factorised, and f_l is a function of its own sample and of what is simulated
after it. So an estimator that compares K samples of one factorised layer is one for any depth. The samples are either

- those of K independent paths from x, which for deeper layers have other parents: K simulations; or
- siblings, as published for hierarchies (Titsias & Shi 2022, Shi et al. 2022): all K start from the parents on one
  path, and what follows is simulated anew for each. The first one is the path itself, where the authors' code simulates
  one more: each layer's estimate has the same distribution. One simulation, and K - 1 more from each layer on.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from releg import bernoulli
from releg.checks import check_at_least
from releg.estimators.base import Estimate, Estimator, mean_over_paths
from releg.estimators.parts.simulation import Simulation, simulate, simulate_from, squared
from releg.sbn import SigmoidBeliefNet

FurtherNoise = list[list[list[Tensor]]]  # by layer and further sample: of its own layer, then of the deeper ones


@dataclass(frozen=True)
class LayerSamples:
    """K samples of a layer for each image, one row for each: (B * K, ...), image by image, without a graph."""

    model: SigmoidBeliefNet
    holders: Sequence[tuple[Simulation, int]]  # what simulated them, and the place of the layer in its path

    @property
    def f(self) -> Tensor:
        """f_l, (N,)."""
        return self._rows(lambda simulation, place: simulation.signals[place])

    @property
    def z(self) -> Tensor:
        """The samples, (N, H)."""
        return self._rows(lambda simulation, place: simulation.path.z[place])

    @property
    def logits(self) -> Tensor:
        """Of the layer, given the parents, (N, H)."""
        return self._rows(lambda simulation, place: simulation.path.logits[place].detach())

    @property
    def slopes(self) -> Tensor:
        """d f_l / d z with deeper layers fixed, (N, H)."""
        return self._rows(lambda simulation, place: simulation.frozen_slope(self.model, place))

    @property
    def scores(self) -> Tensor:
        """z - mean, (N, H)."""
        return bernoulli.score(self.logits, self.z)

    def _rows(self, values: Callable[[Simulation, int], Tensor]) -> Tensor:
        return torch.stack([values(*holder) for holder in self.holders], 1).flatten(0, 1)


class LayerByLayer(Estimator):
    """An estimator of one factorised layer that compares K samples of it, applied to every layer.

    Args:
        samples: K, of each layer for each image.
        siblings: whether the samples of a layer share the parents on the path, or are those of independent paths.
    """

    learns: bool = False  # whether it has parameters, trained on the square of the estimate

    def __init__(self, samples: int = 2, siblings: bool = False) -> None:
        super().__init__()
        check_at_least("samples", samples, 2, "a path is compared with the others")
        self.compared = samples
        self.siblings = siblings
        self.samples = 1 if siblings else samples
        self.label = f"Sibling {self.label}" if siblings else self.label

    @abstractmethod
    def layer_gradient(self, layer: int, drawn: LayerSamples) -> Tensor:
        """An estimate of d elbo / d logits for each sample of a layer, (N, H); their mean is the answer."""

    def draw_noise(self, model: SigmoidBeliefNet, x: Tensor, generator: torch.Generator | None = None) -> list[Tensor]:
        """Noise of the paths; siblings' own comes after that of the one path."""
        if self.siblings:
            return draw_further(model, x, self.compared - 1, generator)
        return super().draw_noise(model, x, generator)

    def evaluations(self, model: SigmoidBeliefNet) -> int:
        """The paths, or one path and the further siblings of every layer."""
        return 1 + (self.compared - 1) * len(model.layers) if self.siblings else self.compared

    def estimate(self, model: SigmoidBeliefNet, x: Tensor, noise: Sequence[Tensor]) -> Estimate:
        """Apply the estimator of a layer to each of them, given its parents."""
        simulation = simulate(model, x, noise)
        layers = _with_siblings(model, simulation, noise, self.compared) if self.siblings else _of_paths(simulation)
        is_trained = self.learns and self.training
        with torch.set_grad_enabled(is_trained and torch.is_grad_enabled()):
            drawn = [LayerSamples(model, holders) for holders in layers]
            gradients = [self.layer_gradient(layer, samples) for layer, samples in enumerate(drawn)]
            # an image's answer is the mean over its samples: its square is what the variance is made of
            means = [mean_over_paths(gradient, self.compared) for gradient in gradients]
            auxiliary = squared(means).repeat_interleave(self.samples) if is_trained else None
        return simulation.answer(means if self.siblings else gradients, self.samples, auxiliary)


def _of_paths(simulation: Simulation) -> list[list[tuple[Simulation, int]]]:
    """By layer: the independent paths, whose rows stand image by image already."""
    return [[(simulation, layer)] for layer in range(len(simulation.path.z))]


def _with_siblings(
    model: SigmoidBeliefNet, simulation: Simulation, noise: Sequence[Tensor], samples: int
) -> list[list[tuple[Simulation, int]]]:
    """By layer: the path, and siblings that are simulated from its parents."""
    path, further = simulation.path, further_noise(noise, len(model.layers), samples - 1)
    layers = enumerate(zip(path.parents(), path.logits, further, strict=True))
    return [
        [(simulation, layer), *((simulate_from(model, layer, below, a.detach(), each), 0) for each in own)]
        for layer, (below, a, own) in layers
    ]


def draw_further(model: SigmoidBeliefNet, x: Tensor, further: int, generator: torch.Generator | None) -> list[Tensor]:
    """Noise of the path; then of each layer's further samples, and of the layers deeper than them."""
    noise = model.draw_noise(x, generator)
    for layer in range(len(model.layers)):
        for _ in range(further):
            noise += model.draw_noise(x, generator)[layer:]
    return noise


def further_noise(noise: Sequence[Tensor], depth: int, further: int) -> FurtherNoise:
    """What draw_further drew for the further samples."""
    rest = iter(noise[depth:])
    return [[[next(rest) for _ in range(layer, depth)] for _ in range(further)] for layer in range(depth)]
