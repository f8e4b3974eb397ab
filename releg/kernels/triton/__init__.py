"""The engine for CUDA: common random numbers in four kernels per layer, without waiting for the device."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from releg import bernoulli
from releg.kernels.batched import linear_terms, margin_of
from releg.kernels.triton.ops import deeper_changes, log_products
from releg.sbn import SigmoidBeliefNet, Trajectory


@torch.no_grad()
def flip_differences(model: SigmoidBeliefNet, path: Trajectory, generative_logits: Sequence[Tensor]) -> list[Tensor]:
    """f1 - f0 of every unit on a GPU, (N, H) per layer, for float32 and float64."""
    flips = _Flips(model, path, [r.detach() for r in generative_logits])
    change: Tensor | None = None
    differences: list[Tensor] = []
    for layer in reversed(range(len(model.layers))):  # deepest first: each layer needs the results of the next
        change = flips.of_layer(layer, change)
        differences.insert(0, flips.signs[layer] * change)  # the flip takes f from f_z to f_(1-z)
    return differences


class _Flips:
    """All flips of a path."""

    def __init__(self, model: SigmoidBeliefNet, path: Trajectory, r: list[Tensor]) -> None:
        self.model, self.path, self.r = model, path, r
        self.logits = [a.detach() for a in path.logits]
        self.signs = [1 - 2 * z for z in path.z]  # (N, H) s
        self.margins = [margin_of(*parts) for parts in zip(path.noise, self.logits, self.signs, strict=True)]
        self.downward = [linear.weight.detach().T for linear in model.generative]  # (H[l], H[l-1]) W
        self.upward = [linear.weight.detach().T for linear in model.inference]  # (H[l-1], H[l]) V
        if len(model.layers) > 1:
            # side by side, as the walk needs them
            z, a, g, margin = (torch.cat(parts, 1) for parts in (path.z, self.logits, r[1:], self.margins))
            self.rows = [z, a, g, margin, bernoulli.log_prob(g, z), bernoulli.log_prob(a, z)]
            self.matrices = [
                torch.cat([matrix.flatten() for matrix in parts[1:]]) for parts in (self.downward, self.upward)
            ]

    def of_layer(self, layer: int, deeper: Tensor | None) -> Tensor:
        """Change of f, (N, H), when a unit of the layer is flipped; `deeper` is the same for the next layer."""
        change = linear_terms(self.model, self.path, self.r, layer)
        change -= log_products(self.r[layer], self.downward[layer], self.signs[layer])
        return change if deeper is None else change + self._below(layer, deeper)

    def _below(self, layer: int, deeper: Tensor) -> Tensor:
        """Change of the terms of deeper layers, without the linear terms, (N, H)."""
        # (H, K): log p(z[l] | z[l+1]) and log q(z[l+1] | z[l]) know both changes
        cross = self.model.generative[layer + 1].weight.detach() - self.upward[layer + 1]
        changed = deeper_changes(self.signs[layer], deeper, cross, *self.rows, *self.matrices, self.model.layers, layer)
        return changed + log_products(self.logits[layer + 1], self.upward[layer + 1], self.signs[layer])
