"""The engine for CUDA: common random numbers in three kernels per layer, without waiting for the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from releg import bernoulli
from releg.kernels.batched import linear_terms, margin_of
from releg.kernels.triton.ops import INTERPRETED, deeper_changes, log_products
from releg.sbn import SigmoidBeliefNet, Trajectory


@dataclass
class TritonEngine:
    """Computes f1 - f0 of every unit on a GPU, for float32 and float64."""

    @torch.no_grad()
    def __call__(
        self, model: SigmoidBeliefNet, path: Trajectory, generative_logits: Sequence[Tensor], entropy: bool = False
    ) -> list[Tensor]:
        """f1 - f0 of every unit, (N, H) per layer."""
        check_tensor(path.x)
        flips = _Flips(model, path, [r.detach() for r in generative_logits], entropy)
        change: Tensor | None = None
        differences: list[Tensor] = []
        for layer in reversed(range(len(model.layers))):  # deepest first: each layer needs the results of the next
            change = flips.of_layer(layer, change)
            differences.insert(0, flips.signs[layer] * change)  # the flip takes f from f_z to f_(1-z)
        return differences


class _Flips:
    """All flips of a path."""

    def __init__(self, model: SigmoidBeliefNet, path: Trajectory, r: list[Tensor], entropy: bool) -> None:
        self.model, self.path, self.r, self.entropy = model, path, r, entropy
        self.logits = [a.detach() for a in path.logits]
        self.signs = [1 - 2 * z for z in path.z]  # (N, H) s
        self.margins = [margin_of(*parts) for parts in zip(path.noise, self.logits, self.signs, strict=True)]
        self.downward = [linear.weight.detach().T for linear in model.generative]  # (H[l], H[l-1]) W
        self.upward = [linear.weight.detach().T for linear in model.inference]  # (H[l-1], H[l]) V
        if len(model.layers) > 1:
            # side by side, as the walk needs them
            z, a, g, margin = (torch.cat(parts, 1) for parts in (path.z, self.logits, r[1:], self.margins))
            log_q = -bernoulli.entropy(a) if entropy else bernoulli.log_prob(a, z)
            self.rows = [z, a, g, margin, bernoulli.log_prob(g, z), log_q]
            self.matrices = [
                torch.cat([matrix.flatten() for matrix in parts[1:]]) for parts in (self.downward, self.upward)
            ]

    def of_layer(self, layer: int, deeper: Tensor | None) -> Tensor:
        """Change of f, (N, H), when a unit of the layer is flipped; `deeper` is the same for the next layer."""
        change = linear_terms(self.model, self.path, self.r, layer, self.entropy)
        change -= log_products(self.r[layer], self.downward[layer], self.signs[layer])
        return change if deeper is None else change + self._below(layer, deeper)

    def _below(self, layer: int, deeper: Tensor) -> Tensor:
        """Change of the terms of deeper layers, without the linear terms, (N, H)."""
        cross = (
            self.model.generative[layer + 1].weight.detach().contiguous()
        )  # (H, K) log p(z[l] | z[l+1]) knows both changes
        if self.entropy:
            single = deeper + self.signs[layer + 1] * self.logits[layer + 1]  # the flip's, but for the unit's own log q
        else:
            single, cross = deeper, cross - self.upward[layer + 1]
        return deeper_changes(
            self.signs[layer], single, cross, *self.rows, *self.matrices, self.model.layers, layer, self.entropy
        )


def check_tensor(x: Tensor) -> None:
    """Raise ValueError unless the kernels can work on tensors like x."""
    if x.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"x is {x.dtype}, expected float32 or float64; use engine='batched' or 'auto'")
    if x.device.type != "cuda" and not INTERPRETED:
        raise ValueError(
            f"x is on {x.device}, expected a CUDA device; use engine='auto', or, for tests on a CPU, start the process "
            "with TRITON_INTERPRET=1"
        )
