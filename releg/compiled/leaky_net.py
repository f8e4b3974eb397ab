"""The compiled pass over a net of leaky units with two outputs, differentiable w.r.t. its weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from releg.compiled import has_numba


def is_compiled_for(*tensors: Tensor, outputs: int) -> bool:
    """Whether the pass can be used: two outputs, float32 on the CPU."""
    fits = all(values.dtype == torch.float32 and values.device.type == "cpu" for values in tensors)
    return outputs == 2 and fits and has_numba()


class LeakyNet(torch.autograd.Function):
    """sum over units h of weights[:, h] leaky(c[n, h] + w[h] steps[n, j]), (N, 2, J); steps are constants.

    Every unit is evaluated at every step, row by row, so that the numbers of a row stay in the cache.
    """

    @staticmethod
    def forward(ctx: Any, c: Tensor, w: Tensor, weights: Tensor, steps: Tensor, leak: float) -> Tensor:
        """The answers; c (N, units), w (units,), weights (2, units), steps (N, J)."""
        given = [c.new_tensor([leak]), *(values.contiguous() for values in (c, w, weights, steps))]
        answers = c.new_zeros(len(steps), 2, steps.shape[1])
        _run(given, answers, None)
        ctx.save_for_backward(*given)
        return answers

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients w.r.t. c, w and weights."""
        _, c, *_ = ctx.saved_tensors
        gradients = c.new_empty(len(c), 4, c.shape[1])
        _run(ctx.saved_tensors, outer.contiguous(), gradients)
        totals = gradients[:, 1:].sum(0)
        return gradients[:, 0], totals[0], totals[1:], None, None


def _run(given: Any, answers: Tensor, gradients: Tensor | None) -> None:
    from releg.compiled import elementwise  # numba is imported here, so that everything else works without it

    _, c, _, _, steps = given
    arrays = (*given, answers, gradients)
    addresses = [0 if values is None else values.data_ptr() for values in arrays]
    elementwise.run(elementwise.leaky_net, [0, *c.shape, steps.shape[1], *addresses], len(c))
