"""Streaming moments in float64, and numbers with a standard error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


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
    def stacked(cls, parts: Sequence[RunningMoments]) -> RunningMoments:
        """Several data sets along a new first dimension."""
        fields = zip(*((part.weight, part.mean, part.m2) for part in parts), strict=True)
        return cls(*(torch.stack(values) for values in fields))

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
