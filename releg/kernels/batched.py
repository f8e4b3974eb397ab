"""The batched engine: all flips of a layer at once, in plain torch, on any device.

For a flip of unit i of layer l let s = +1 if the unit is 0 and -1 if it is 1. The flip changes f by

    s * (below @ W)_i - sum_j [softplus(r_j + s W_ij) - softplus(r_j)]     log p(below | z[l]), r its logits
    + s * (g_i - a_i)                                                      log p(z[l] | z[l+1]) - log q(z[l] | ...)
    - s * (z[l+1] @ V)_i + sum_k [softplus(a_k + s V_ik) - softplus(a_k)]  -log q(z[l+1] | z[l])

if z[l+1] stays as it is. The sums over j and k are products of factors (log_product.py). For the (row, unit) pairs in
which a unit of z[l+1] changes, all deeper layers are simulated again: unit k is on iff logit(noise) - a_k < s V_ik.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from releg import bernoulli
from releg.kernels.log_product import LogProduct
from releg.sbn import SigmoidBeliefNet, Trajectory
from releg.uncompiled import uncompiled

ARRAYS_AT_ONCE = 4  # (rows, units, width) temporaries alive at the same time, for the memory bound


@uncompiled  # how many units change decides the size of the arrays
@torch.no_grad()
def flip_differences(
    model: SigmoidBeliefNet, path: Trajectory, generative_logits: Sequence[Tensor], memory_mib: float = 256.0
) -> list[Tensor]:
    """f1 - f0 of every unit, (N, H) per layer, within memory_mib of working memory, which changes no number."""
    logits = [r.detach() for r in generative_logits]
    return [_Layer(model, path, logits, layer).differences(memory_mib) for layer in range(len(model.layers))]


def _blocks(memory_mib: float, rows: int, units: int, width: int, itemsize: int) -> Iterator[tuple[slice, slice]]:
    """Slices of rows and of units such that arrays of (rows, units, width) fit the memory bound."""
    pairs = max(1, int(memory_mib * 2**20) // (ARRAYS_AT_ONCE * width * itemsize))
    unit_step = min(units, pairs)
    row_step = max(1, pairs // unit_step)
    for row in range(0, rows, row_step):
        for unit in range(0, units, unit_step):
            yield slice(row, min(row + row_step, rows)), slice(unit, min(unit + unit_step, units))


class _Layer:
    """All flips of one layer."""

    def __init__(self, model: SigmoidBeliefNet, path: Trajectory, generative_logits: list[Tensor], layer: int) -> None:
        self.model = model
        self.path = path
        self.r = generative_logits  # r[l] are the logits of z[l-1] (of x for l = 0), r[-1] the prior's
        self.layer = layer
        self.sign = 1 - 2 * path.z[layer]  # (N, H) s
        self.below = LogProduct(self.r[layer], model.generative[layer].weight.T)
        self.has_deeper = layer + 1 < len(model.layers)
        if self.has_deeper:
            self.weight = model.inference[layer + 1].weight.T  # (H, K) V
            self.deeper_logits = path.logits[layer + 1].detach()  # (N, K) a
            self.deeper_sign = 1 - 2 * path.z[layer + 1]
            self.margin = margin_of(path.noise[layer + 1], self.deeper_logits, self.deeper_sign)
            self.deeper = LogProduct(self.deeper_logits, self.weight)
            before = bernoulli.total_log_prob(path.logits[layer + 1 :], path.z[layer + 1 :])
            self.terms = bernoulli.total_log_prob(self.r[layer + 1 :], path.z[layer:]) - before  # (N,)
            self.linear = self.sign * (self.r[layer + 1] - path.z[layer + 1] @ self.weight.T)  # change of these

    def differences(self, memory_mib: float) -> Tensor:
        """f1 - f0, (N, H)."""
        change = linear_terms(self.model, self.path, self.r, self.layer)
        widths = [self.r[self.layer].shape[1], *self.model.layers[self.layer + 1 :]]
        rows, units = change.shape
        for block in _blocks(memory_mib, rows, units, max(widths), change.element_size()):
            change[block] -= self.below(*block, self.sign[block])
            if self.has_deeper:
                change[block] += self._deeper_change(*block)
        return self.sign * change  # the flip takes f from f_z to f_(1-z)

    def _deeper_change(self, rows: slice, units: slice) -> Tensor:
        """Change of all terms of the layers deeper than the flipped one, without the linear terms, (R, I)."""
        sign = self.sign[rows, units]
        delta = sign[..., None] * self.weight[units]  # (R, I, K)
        change = self.deeper(rows, units, sign)
        changed = self.deeper_sign[rows, None] * delta > self.margin[rows, None]  # (R, I, K)
        row, unit = changed.any(-1).nonzero(as_tuple=True)  # waits for the device: the number of pairs is needed
        change[row, unit] = self._simulated(row + rows.start, unit + units.start)
        return change

    def _simulated(self, row: Tensor, unit: Tensor) -> Tensor:
        """Change of the deeper terms for M pairs of row and unit, with all deeper layers simulated again: (M,)."""
        below = self.path.z[self.layer][row]  # (M, H)
        below[torch.arange(len(row), device=row.device), unit] += self.sign[row, unit]
        change = -self.terms[row] - self.linear[row, unit]
        for layer in range(self.layer + 1, len(self.model.layers)):
            logits = self.model.inference_logits(layer, below)
            z = bernoulli.sample(logits, self.path.noise[layer][row])
            change += bernoulli.log_prob(self.model.generative[layer](z), below).sum(-1)
            change -= bernoulli.log_prob(logits, z).sum(-1)
            below = z
        return change + bernoulli.log_prob(self.r[-1][row], below).sum(-1)


def linear_terms(model: SigmoidBeliefNet, path: Trajectory, generative_logits: Sequence[Tensor], layer: int) -> Tensor:
    """s * (below @ W + g - a - z[l+1] @ V), (N, H)."""
    weight = model.generative[layer].weight.detach()  # (J, H)
    slope = path.parents()[layer] @ weight + generative_logits[layer + 1] - path.logits[layer].detach()
    if layer + 1 < len(model.layers):
        slope -= path.z[layer + 1] @ model.inference[layer + 1].weight.detach()
    return (1 - 2 * path.z[layer]) * slope


def margin_of(noise: Tensor, logits: Tensor, sign: Tensor) -> Tensor:
    """How far each logit has to move, in the direction of sign, before its unit changes.

    At least one rounding error: a unit whose noise is exactly at its threshold must not change if its logit does not.
    """
    return (sign * (torch.logit(noise) - logits)).clamp(min=torch.finfo(logits.dtype).eps)
