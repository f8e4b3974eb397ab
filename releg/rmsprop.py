"""The paper's optimiser."""

from __future__ import annotations

from typing import Any

import torch
from torch.optim.optimizer import ParamsT

# The learning rate is the paper's; smoothing and epsilon are those of the authors' later code
PAPER: dict[str, Any] = {"lr": 0.001, "alpha": 0.99, "eps": 1e-8}


def paper_rmsprop(params: ParamsT) -> torch.optim.Optimizer:
    """torch's RMSprop with the paper's settings."""
    return torch.optim.RMSprop(params, **PAPER)
