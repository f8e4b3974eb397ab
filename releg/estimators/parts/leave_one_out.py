"""What is left of f when each path is compared with the others of its image."""

from __future__ import annotations

from torch import Tensor


def less_others(f: Tensor) -> Tensor:
    """f minus the mean of the other paths', (B, K): K / (K - 1) times f minus the mean of all."""
    paths = f.shape[1]
    return (f - f.mean(1, keepdim=True)) * (paths / (paths - 1))
