"""Moments in float64 that can be merged, of one array or of a whole measurement; numbers with a standard error."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from releg.files import write_atomically


@dataclass(frozen=True)
class RunningMoments:
    """Sum of weights, weighted mean, weighted sum of squared deviations; elementwise, float64 (Chan et al. 1983)."""

    weight: Tensor
    mean: Tensor
    m2: Tensor

    @classmethod
    def of(cls, values: Tensor, dim: int, weights: Tensor | None = None) -> RunningMoments:
        """Moments of values along a dimension, with weight 1 by default."""
        values = values.double()
        if weights is not None:
            return cls(weights.double(), values, torch.zeros_like(values)).pooled(dim)
        mean = values.mean(dim)
        m2 = (values - mean.unsqueeze(dim)).square_().sum(dim)
        return cls(torch.full_like(mean, values.shape[dim]), mean, m2)

    def pooled(self, dim: int) -> RunningMoments:
        """Merge the data sets along a dimension, without subtracting large numbers."""
        weight = self.weight.sum(dim)
        mean = (self.weight * self.mean).sum(dim) / weight
        m2 = (self.m2 + self.weight * (self.mean - mean.unsqueeze(dim)).square()).sum(dim)
        return RunningMoments(weight, mean, m2)

    def merged(self, other: RunningMoments | None) -> RunningMoments:
        """Moments of the union of both data sets."""
        return self if other is None else RunningMoments.stacked([self, other]).pooled(0)

    @classmethod
    def stacked(cls, parts: Sequence[RunningMoments], join: Callable[..., Tensor] = torch.stack) -> RunningMoments:
        """Several data sets along a new first dimension; with torch.cat, along the one that they have."""
        fields = zip(*((part.weight, part.mean, part.m2) for part in parts), strict=True)
        return cls(*(join(values) for values in fields))

    def __getitem__(self, index: int | slice | list[int]) -> RunningMoments:
        """Some of the data sets along the first dimension."""
        return RunningMoments(self.weight[index], self.mean[index], self.m2[index])

    def variance(self) -> Tensor:
        """The unbiased variance; weights are counts."""
        return self.m2 / (self.weight - 1)


@dataclass(frozen=True)
class Number:
    """An estimate, and its values without each group of images, (G,)."""

    value: float
    left_out: Tensor

    @property
    def standard_error(self) -> float:
        """Jackknife standard error; NaN if too few images remain without a group."""
        groups = len(self.left_out)
        spread = (self.left_out - self.left_out.mean()).square().sum()
        return math.sqrt((groups - 1) / groups * spread.item())

    def __truediv__(self, other: Number) -> Number:
        """The ratio of two numbers from the same images."""
        value = self.value / other.value if other.value else math.nan
        return Number(value, self.left_out / other.left_out)


WITHIN, EXACT = "within", ["exact_within", "optimal_within"]
# Moments over the images of each group, by layer (0 is next to x). A row is the mean estimate of each unit of a layer,
# followed by the layer's kinds of variance: (H + kinds,). A group without images yet has no layers.
Groups = list[dict[int, RunningMoments]]


@dataclass(frozen=True)
class GradientVariances:
    """The numbers of one estimator: for each layer, shallow first, by kind (within, between, ...)."""

    num_images: int
    samples_per_image: int
    layers: list[dict[str, Number]]


@dataclass(frozen=True)
class Moments:
    """Moments of all estimators. Image numbers decide the groups of the jackknife."""

    num_images: int  # of the whole measurement
    samples_per_image: int
    kinds: dict[str, list[str]]  # by estimator: the kinds of variance at the end of a row
    groups: dict[str, Groups]

    def merged(self, other: Moments) -> Moments:
        """Merged with another part of the same measurement."""
        groups = {
            name: [_merged(one, two) for one, two in zip(mine, other.groups[name], strict=True)]
            for name, mine in self.groups.items()
        }
        return Moments(self.num_images, self.samples_per_image, self.kinds, groups)

    def variances(self) -> dict[str, GradientVariances]:
        """The numbers of every estimator, once all images are in."""
        return {name: self._variances(name) for name in self.groups}

    def _variances(self, name: str) -> GradientVariances:
        groups = self.groups[name]
        layers = [self._numbers(self.kinds[name], [group[layer] for group in groups]) for layer in groups[0]]
        return GradientVariances(self.num_images, self.samples_per_image, layers)

    def _numbers(self, kinds: Sequence[str], parts: Sequence[RunningMoments]) -> dict[str, Number]:
        groups, count = RunningMoments.stacked(parts), range(len(parts))
        rests = [groups[[other for other in count if other != left]] for left in count]
        left_out = [self._summary(kinds, rest.pooled(0)) for rest in rests]
        return {
            kind: Number(value, torch.tensor([numbers[kind] for numbers in left_out], dtype=torch.float64))
            for kind, value in self._summary(kinds, groups.pooled(0)).items()
        }

    def _summary(self, kinds: Sequence[str], images: RunningMoments) -> dict[str, float]:
        units = len(images.mean) - len(kinds)
        numbers = dict(zip(kinds, images.mean[units:].tolist(), strict=True))
        within = numbers.pop(WITHIN)
        between = images.variance()[:units].mean().item() - within / self.samples_per_image
        return {WITHIN: within, "between": between, "total": within + between, **numbers}

    def save(self, path: Path) -> None:
        """Write it."""
        content = io.BytesIO()
        torch.save(self, content)  # into a file, it would turn the system's errors into its own
        write_atomically(path, content.getvalue())

    @classmethod
    def load(cls, path: Path) -> Moments:
        """Read it; no other classes are built, and no code is run."""
        with torch.serialization.safe_globals([Moments, RunningMoments]):
            found: Moments = torch.load(path, weights_only=True)
        return found


def _merged(one: dict[int, RunningMoments], two: dict[int, RunningMoments]) -> dict[int, RunningMoments]:
    return {layer: two[layer].merged(one.get(layer)) if layer in two else one[layer] for layer in {**one, **two}}
