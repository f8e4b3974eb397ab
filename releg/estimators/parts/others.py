"""What an image's other paths tell one of them: what leave-one-out estimators with control variates share."""

from __future__ import annotations

from torch import Tensor, enable_grad

from releg.estimators.parts.signals import continued_signal, derivative
from releg.sbn import Path, SigmoidBeliefNet


def mean_of_others(values: Tensor, samples: int) -> Tensor:
    """The mean over the image's other paths, for every path: like values, (N, ...), `samples` rows per image."""
    paths = values.unflatten(0, (-1, samples))
    return ((paths.sum(1, keepdim=True) - paths) / (samples - 1)).flatten(0, 1)


def frozen_slope(model: SigmoidBeliefNet, path: Path, layer: int) -> Tensor:
    """d f_l / d z[l] along the path, deeper layers as they are: (N, H)."""
    with enable_grad():
        z = path.z[layer].clone().requires_grad_()
        below, logits = path.parents()[layer], path.logits[layer].detach()
        remaining = iter(path.z[layer + 1 :])
        signal = continued_signal(model, layer, below, logits, z, path.noise, lambda *_: next(remaining))
        return derivative(signal, z)
