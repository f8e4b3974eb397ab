"""Softplus differences of many flips at once, in torch: a matrix product with the log of a product in place of a sum.

    sum_j [softplus(r_j + d_ij) - softplus(r_j)] = sum_j log(sigmoid(-r_j) + sigmoid(r_j) exp(d_ij)),    d_ij = s_i w_ij

has only positive terms inside the logarithm, and every factor is between 1 and exp(d). So one logarithm serves as many
factors as max |w| keeps in range, and only the weights need exp.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, pad

CHUNK = 64  # factors per logarithm if the range allows it; with more, the logarithms no longer matter


class LogProduct:
    """Softplus differences of the targets of a weight matrix, for flips of single units.

    Args:
        logits: (N, J) r, of the targets.
        weight: (I, J) from units to targets.
    """

    def __init__(self, logits: Tensor, weight: Tensor) -> None:
        self.logits, self.weight = logits, weight
        top = weight.abs().max().item()  # waits for the device, once per matrix
        room = math.log(torch.finfo(weight.dtype).max) - 8
        fitting = int(room / top) if top > room / CHUNK else CHUNK
        self.chunk = min(fitting, logits.shape[1])
        if self.chunk > 0:
            missing = -logits.shape[1] % self.chunk
            self.stay = pad(torch.sigmoid(-logits), (0, missing), value=1.0)  # padding makes factors of 1
            self.move = pad(torch.sigmoid(logits), (0, missing))
            self.up = pad(weight.exp(), (0, missing), value=1.0)
            self.down = pad((-weight).exp(), (0, missing), value=1.0)

    def __call__(self, rows: slice, units: slice, sign: Tensor) -> Tensor:
        """The sum for every row and unit of the block, with sign (R, I) = s: (R, I)."""
        sign = sign[..., None]
        if self.chunk == 0:  # exp of a weight overflows
            before = -self.logits[rows, None]  # (R, 1, J); torch's softplus is off by 2e-9 beyond 20, logsigmoid is not
            return (logsigmoid(before) - logsigmoid(before - sign * self.weight[units])).sum(-1)
        factors = torch.where(sign > 0, self.up[units], self.down[units])  # (R, I, J)
        torch.addcmul(self.stay[rows, None], self.move[rows, None], factors, out=factors)
        return factors.unflatten(-1, (-1, self.chunk)).prod(-1).log().sum(-1)
