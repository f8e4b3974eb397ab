"""The batched engine: all flips of a layer at once, in plain torch, on any device.

For a flip of unit i of layer l let s = +1 if the unit is 0 and -1 if it is 1. The flip changes f by

    s * (below @ W)_i - sum_j [softplus(r_j + s W_ij) - softplus(r_j)]     log p(below | z[l]), r its logits
    + s * (g_i - a_i)                                                      log p(z[l] | z[l+1]) - log q(z[l] | ...)
    - s * (z[l+1] @ V)_i + sum_k [softplus(a_k + s V_ik) - softplus(a_k)]  -log q(z[l+1] | z[l])
    + what follows from the units of z[l+1] that changed.

Only the last line needs simulation, and only for the (row, unit) pairs in which a unit did change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

from releg import bernoulli
from releg.sbn import Path, SigmoidBeliefNet

ARRAYS_AT_ONCE = 6  # (rows, units, width) temporaries alive at the same time, for the memory bound


@dataclass
class BatchedEngine:
    """Computes f1 - f0 of every unit within `memory_mib` of working memory."""

    memory_mib: float = 256.0

    def __post_init__(self) -> None:
        if self.memory_mib <= 0:
            raise ValueError(f"memory_mib is {self.memory_mib}, expected a positive number; the default is 256")

    @torch.no_grad()
    def __call__(
        self, model: SigmoidBeliefNet, path: Path, generative_logits: Sequence[Tensor], entropy: bool = False
    ) -> list[Tensor]:
        """f1 - f0 of every unit, (N, H) per layer."""
        logits = [r.detach() for r in generative_logits]
        return [_Layer(model, path, logits, layer, entropy).differences(self) for layer in range(len(model.layers))]

    def blocks(self, rows: int, units: int, width: int, itemsize: int) -> Iterator[tuple[slice, slice]]:
        """Slices of rows and of units such that arrays of (rows, units, width) fit the memory bound."""
        pairs = max(1, int(self.memory_mib * 2**20) // (ARRAYS_AT_ONCE * width * itemsize))
        unit_step = min(units, pairs)
        row_step = max(1, pairs // unit_step)
        for row in range(0, rows, row_step):
            for unit in range(0, units, unit_step):
                yield slice(row, min(row + row_step, rows)), slice(unit, min(unit + unit_step, units))


class _Layer:
    """All flips of one layer."""

    def __init__(
        self, model: SigmoidBeliefNet, path: Path, generative_logits: list[Tensor], layer: int, entropy: bool
    ) -> None:
        self.model = model
        self.path = path
        self.r = generative_logits  # r[l] are the logits of z[l-1] (of x for l = 0), r[-1] the prior's
        self.layer = layer
        self.entropy = entropy
        self.sign = 1 - 2 * path.z[layer]  # (N, H) s

    def differences(self, engine: BatchedEngine) -> Tensor:
        """f1 - f0, (N, H)."""
        change = self._linear_terms()
        widths = [self.r[self.layer].shape[1], *self.model.layers[self.layer + 1 :]]
        rows, units = change.shape
        for block in engine.blocks(rows, units, max(widths), change.element_size()):
            change[block] -= self._softplus_change(block)
            if self.layer + 1 < len(self.model.layers):
                change[block] += self._deeper_change(block)
        return self.sign * change  # the flip takes f from f_z to f_(1-z)

    def _linear_terms(self) -> Tensor:
        """s * (below @ W + g - a), (N, H)."""
        below = self.path.parents()[self.layer]
        weight = self.model.generative[self.layer].weight  # (J, H)
        return self.sign * (below @ weight + self.r[self.layer + 1] - self.path.logits[self.layer].detach())

    def _softplus_change(self, block: tuple[slice, slice]) -> Tensor:
        """Sum over the units j below of softplus(r_j + s W_ij) - softplus(r_j)."""
        rows, units = block
        weight = self.model.generative[self.layer].weight.T[units]  # (I, J)
        r = self.r[self.layer][rows, None]  # (R, 1, J)
        return (softplus(r + self.sign[block][..., None] * weight) - softplus(r)).sum(-1)

    def _deeper_change(self, block: tuple[slice, slice]) -> Tensor:
        """Change of all terms of the layers deeper than the flipped one, (R, I)."""
        rows, units = block
        deeper = self.layer + 1
        before = self.path.logits[deeper].detach()[rows, None]  # (R, 1, K) a
        old = self.path.z[deeper][rows, None]
        after = before + self.sign[block][..., None] * self.model.inference[deeper].weight.T[units]  # (R, I, K)
        z = bernoulli.sample(after, self.path.noise[deeper][rows, None])
        change = self._q_change(after, z, before, old)
        changed = (z != old).any(-1).nonzero(as_tuple=True)  # waits for the device: the number of pairs is needed
        row, unit = changed[0] + rows.start, changed[1] + units.start
        flipped = self.path.z[self.layer][row]
        flipped[torch.arange(len(row), device=row.device), unit] += self.sign[row, unit]
        counted = (self.sign * self.r[deeper])[row, unit]  # log p(z[l] | z[l+1]) had been taken with the old z[l+1]
        change[changed] += self._continue(row, flipped, z[changed]) - counted
        return change

    def _continue(self, row: Tensor, below: Tensor, z: Tensor) -> Tensor:
        """Change of f from log p(z[l] | z[l+1]) on, for M rows of the path in which z[l+1] changed: (M,).

        Args:
            row: (M,) which row of the path.
            below: (M, H_l) the flipped layer.
            z: (M, H_(l+1)) the changed layer below it.
        """
        total = torch.zeros_like(below[:, 0])
        active = torch.arange(len(row), device=row.device)  # where in total each pair still simulated stands
        path = self.path
        for layer in range(self.layer + 1, len(self.model.layers)):
            total[active] += self._p_change(layer, row, self.model.generative[layer](z), below)
            if layer + 1 == len(self.model.layers):
                total[active] += self._p_change(layer + 1, row, self.r[-1][row], z)
                break
            before, old = path.logits[layer + 1].detach()[row], path.z[layer + 1][row]
            after = self.model.inference_logits(layer + 1, z)
            deeper = bernoulli.sample(after, path.noise[layer + 1][row])
            total[active] += self._q_change(after, deeper, before, old)
            changed = (deeper != old).any(-1)
            kept = ~changed
            total[active[kept]] += self._p_change(layer + 1, row[kept], self.r[layer + 1][row[kept]], z[kept])
            active, row, below, z = active[changed], row[changed], z[changed], deeper[changed]
        return total

    def _p_change(self, layer: int, row: Tensor, logits: Tensor, value: Tensor) -> Tensor:
        """Change of log p(z[layer-1] | z[layer]) to the given logits and value."""
        new = bernoulli.log_prob(logits, value)
        return (new - bernoulli.log_prob(self.r[layer][row], self.path.z[layer - 1][row])).sum(-1)

    def _q_change(self, after: Tensor, z: Tensor, before: Tensor, old: Tensor) -> Tensor:
        """Change of -log q of a layer, or of its entropy, summed over its units."""
        if self.entropy:
            return (bernoulli.entropy(after) - bernoulli.entropy(before)).sum(-1)
        return (bernoulli.log_prob(before, old) - bernoulli.log_prob(after, z)).sum(-1)
