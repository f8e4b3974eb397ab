"""Gradients in closed form: with one linear layer per conditional they are products of known matrices.

With g the estimate of d elbo / d logits of a conditional and v what its linear layer was given, that layer's weights
have the gradient -g.T @ v and its biases -g.sum(0). So an estimator need not keep a graph of the model: it is called
with a model whose parameters are constants, and the loss gets its gradient from here.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from releg.estimators.base import Estimate, Estimator, repeated
from releg.sbn import SigmoidBeliefNet


class Twin:
    """A model that shares its parameters' memory with another, as constants: no graph is built on them."""

    def __init__(self) -> None:
        self._twin: SigmoidBeliefNet | None = None
        self._shared: list[int] = []  # addresses of what both have

    def __deepcopy__(self, memo: dict[int, Any]) -> Twin:
        return Twin()

    def __getstate__(self) -> dict[str, Any]:
        return vars(Twin())  # no state: the twin is made anew

    def of(self, model: SigmoidBeliefNet, parameters: Sequence[Tensor]) -> SigmoidBeliefNet:
        """The twin, made anew if the model's tensors were replaced since (another device, another number type)."""
        addresses = [p.data_ptr() for p in parameters]
        if self._twin is None or addresses != self._shared or self._twin.mean is not model.mean:
            self._twin = copy.deepcopy(model).requires_grad_(False)
            for own, other in zip(_parameters(self._twin), parameters, strict=True):
                own.data = other.data
            self._twin.mean = model.mean
            self._shared = addresses
        return self._twin


def loss_in_closed_form(
    estimator: Estimator, model: SigmoidBeliefNet, twin: Twin, x: Tensor, noise: Sequence[Tensor]
) -> tuple[Estimate, Tensor]:
    """The estimator's answer and the sum of its surrogate over the images, (), differentiable w.r.t. the model.

    Args:
        estimator: one whose `closed_form` is true.
        model: the model; its gradient is that of the surrogate.
        twin: kept from call to call.
        x: (B, data_size) binary, not checked.
        noise: as the estimator draws it, not checked.
    """
    parameters = _parameters(model)
    answer = estimator.estimate(twin.of(model, parameters), repeated(x, estimator.samples), noise)
    _check_parts(estimator, answer)
    return answer, _Sum.apply(answer.surrogate, answer, estimator.samples, *parameters)


def _check_parts(estimator: Estimator, answer: Estimate) -> None:
    missing = [name for name in ("logit_grads", "path", "generative_grads") if getattr(answer, name) is None]
    if missing:
        raise ValueError(
            f"{type(estimator).__name__} has closed_form = True, but its answer lacks {', '.join(missing)}, expected "
            "all that the closed form is made of; answer with them, or set closed_form = False for autograd"
        )


def _parameters(model: SigmoidBeliefNet) -> list[Tensor]:
    """Weight and bias of every conditional: those of q, those of p, each shallow first, and the prior's logits."""
    return [*(p for linear in model.linears() for p in (linear.weight, linear.bias)), model.prior_logits]


class _Sum(torch.autograd.Function):
    """Sum of the surrogate over the images, with the gradients w.r.t. the model's parameters in closed form."""

    @staticmethod
    def forward(ctx: Any, surrogate: Tensor, answer: Estimate, samples: int, *parameters: Tensor) -> Tensor:
        ctx.answer = answer
        ctx.samples = samples
        return surrogate.sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor | None, ...]:
        wanted = ctx.needs_input_grad[3:]
        gradients = parameter_gradients(ctx.answer, ctx.samples, outer)
        return None, None, None, *(g if want else None for g, want in zip(gradients, wanted, strict=True))


def parameter_gradients(answer: Estimate, samples: int, outer: Tensor) -> list[Tensor]:
    """Gradients of the surrogate's sum, times outer (): weight and bias of every conditional, then the prior's logits.

    Args:
        answer: with path, logit_grads and generative_grads.
        samples: paths per image, over which the surrogate is the mean.
        outer: derivative of the loss w.r.t. the sum.
    """
    assert answer.path is not None
    assert answer.logit_grads is not None
    assert answer.generative_grads is not None
    *conditional, prior = answer.generative_grads
    above, below = [*answer.logit_grads, *conditional], [*answer.path.layer_inputs(), *answer.path.z]
    if outer.device.type == "cpu":
        scale = -outer.item() / samples  # on another device reading it would make the program wait for the device
    else:
        scale = -1 / samples
        above, prior = [g * outer for g in above], prior * outer
    gradients = []
    for g, inputs in zip(above, below, strict=True):
        weight = torch.empty(g.shape[1], inputs.shape[1], dtype=g.dtype, device=g.device)
        gradients += [torch.addmm(weight, g.T, inputs, beta=0, alpha=scale, out=weight), g.sum(0).mul_(scale)]
    return [*gradients, prior.sum(0).mul_(scale)]
