"""How many units of each layer tell images apart: a unit that is always off, or always on, carries nothing."""

from __future__ import annotations

import torch
from torch import Tensor

from releg.sbn import SigmoidBeliefNet

LEAST_DEVIATION = 0.02  # of a unit in use: the standard deviation of its probability over images


@torch.no_grad()
def units_in_use(model: SigmoidBeliefNet, x: Tensor, generator: torch.Generator | None = None) -> list[int]:
    """Per layer, shallow first: the units whose probability under q varies, over images x and one sample each."""
    path = model.infer(x, model.draw_noise(x, generator))
    return [int((logits.sigmoid().std(0) > LEAST_DEVIATION).sum()) for logits in path.logits]
