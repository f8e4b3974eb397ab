"""Checks that many arguments need."""

from __future__ import annotations

import torch
from torch import Tensor


def check_at_least(name: str, value: float, least: float, why: str) -> None:
    """Raise ValueError, which ends with the reason or the default, unless the argument of that name is large enough."""
    if not value >= least:
        raise ValueError(f"{name} is {value}, expected at least {least}; {why}")


def check_range(noise: Tensor, name: str, fix: str) -> None:
    """Raise ValueError unless all noise lies in [0, 1): the inverse-CDF rule z = noise < mean needs it."""
    low, high = torch.aminmax(noise)
    if not bool((low >= 0) & (high < 1)):
        raise ValueError(
            f"{name} ranges from {low.item():g} to {high.item():g}, expected uniform numbers in [0, 1); {fix}"
        )
