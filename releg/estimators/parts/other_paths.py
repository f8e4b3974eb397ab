"""Comparisons of a path with the other paths of its image, for leave-one-out estimators."""

from __future__ import annotations

from torch import Tensor


def mean_of_others(values: Tensor, samples: int) -> Tensor:
    """For every path the mean over the other paths of its image: like values, (N, ...), `samples` rows per image."""
    paths = values.unflatten(0, (-1, samples))
    return ((paths.sum(1, keepdim=True) - paths) / (samples - 1)).flatten(0, 1)


def less_others(f: Tensor) -> Tensor:
    """f minus the mean over the other paths, (B, K): K / (K - 1) times f minus the mean over all."""
    paths = f.shape[1]
    return (f - f.mean(1, keepdim=True)) * (paths / (paths - 1))
