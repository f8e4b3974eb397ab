"""Shared by the estimators on plain logits: the variables, the checks of the input, and the answer.

Logits (N, units) mean Bernoulli variables, whose values z are (N, units) zeros and ones in the type of the logits.
Logits (N, units, states) mean categorical variables, with long values (N, units).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from releg import bernoulli, categorical
from releg.discrete.estimate import checked_f
from releg.discrete.model import check_uniform

F = Callable[[Tensor], Tensor]  # z to (N,)
NO_SLOPE = (
    "f is not differentiable w.r.t. z (its result has no gradient function), expected torch functions of z; use "
    "common_random_numbers, which needs no derivative"
)


class Answer(NamedTuple):
    """The result of every estimator here: maximise f, minimise the surrogate."""

    value: Tensor  # (N,) detached: f, averaged over the samples at which it was evaluated
    surrogate: Tensor  # (N,) its gradient estimates that of -E f, for the logits and for the parameters of f


def check_logits(logits: Tensor, estimator: str, categorical_form: bool = True) -> None:
    """Raise an error unless these are finite logits that the estimator can take."""
    if logits.dim() == 3 and not categorical_form:
        raise ValueError(
            f"logits have shape {tuple(logits.shape)}, expected (N, units): {estimator} has no form for categorical "
            "variables; use common_random_numbers or leave_one_out"
        )
    if logits.dim() not in (2, 3) or 0 in logits.shape or not logits.is_floating_point():
        raise ValueError(
            f"logits have shape {tuple(logits.shape)} and are {logits.dtype}, expected floating-point (N, units) for "
            "Bernoulli variables or (N, units, states) for categorical ones; add the missing axis by unsqueeze"
        )
    if logits.dim() == 3 and logits.shape[-1] < 2:
        raise ValueError(f"logits have shape {tuple(logits.shape)}, expected at least 2 states; leave constants out")
    if not bool(torch.isfinite(logits).all()):
        raise FloatingPointError(
            f"logits range from {logits.min().item()} to {logits.max().item()}, expected finite numbers; "
            "check the parameters, and exclude states by -1e4 instead of -inf"
        )


def noise_for(
    logits: Tensor, noise: Tensor | None, generator: torch.Generator | None, shape: tuple[int, ...] | None = None
) -> Tensor:
    """Uniform numbers of that shape, (N, units) by default: the given ones, after a check, or new ones."""
    shape = tuple(logits.shape[:2]) if shape is None else shape
    if noise is None:
        return torch.rand(shape, generator=generator, dtype=logits.dtype, device=logits.device)
    check_uniform(noise, shape, "noise", "leave it out to have it drawn")
    return noise


def sample(logits: Tensor, noise: Tensor) -> Tensor:
    """Values (..., N, units) from noise of that shape."""
    kind = bernoulli if logits.dim() == 2 else categorical
    return kind.sample(logits.detach().expand(*noise.shape, *logits.shape[2:]), noise)


def score(logits: Tensor, z: Tensor) -> Tensor:
    """The gradient of log q(z) w.r.t. the logits, in their shape, for values (N, units)."""
    kind = bernoulli if logits.dim() == 2 else categorical
    return kind.score(logits.detach(), z)


def evaluate(f: F, z: Tensor) -> Tensor:
    """Checked f(z), (N,)."""
    return checked_f(f(z), len(z), lambda row: z[row].tolist())


def vectors(z: Tensor, logits: Tensor) -> Tensor:
    """Values in the form that a differentiable f takes: zeros and ones, or one-hot vectors of the states."""
    return z if logits.dim() == 2 else torch.nn.functional.one_hot(z, logits.shape[-1]).to(logits.dtype)


def differentiable(f: F, z: Tensor) -> Tensor:
    """f(z), which must depend on z in a way that autograd can follow."""
    value = evaluate(f, z)
    if z.requires_grad and not value.requires_grad:
        raise ValueError(NO_SLOPE)
    return value


def slope_of(value: Tensor, z: Tensor) -> Tensor:
    """d value / d z, row by row."""
    (slope,) = torch.autograd.grad(value.sum(), z, retain_graph=True, allow_unused=True)
    if slope is None:
        raise ValueError(NO_SLOPE)
    return slope


def per_logit(weights: Tensor, logits: Tensor) -> Tensor:
    """(N,) with trailing axes of size one, so that it can be multiplied by the logits."""
    return weights.view(-1, *[1] * (logits.dim() - 1))


def answer(value: Tensor, logits: Tensor, logit_grads: Tensor) -> Answer:
    """The surrogate -value, whose backward pass gives the logits -logit_grads, the estimate of -d E f / d logits."""
    adds_zero = (logit_grads.detach() * (logits - logits.detach())).flatten(1).sum(1)
    return Answer(value.detach(), -value - adds_zero)
