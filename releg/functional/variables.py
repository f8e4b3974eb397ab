"""Shared by the estimators on plain logits: the variables, the checks of the input, and the answer.

Logits (N, units) mean Bernoulli variables, whose values z are (N, units) zeros and ones in the type of the logits.
Logits (N, units, states) mean categorical variables, with long values (N, units). A logit of -inf is a state that
cannot occur: no estimator evaluates f there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from releg import bernoulli, categorical
from releg.checks import check_range
from releg.estimators.parts.categorical_slopes import differential

F = Callable[[Tensor], Tensor]  # z to (N,)
Noise = Tensor | None
Generator = torch.Generator | None
NO_SLOPE = (
    "f is not differentiable w.r.t. z (its result has no gradient function), expected torch functions of z; use "
    "common_random_numbers, which needs no derivative"
)


class Answer(NamedTuple):
    """The result of every estimator here: maximise f, minimise the surrogate."""

    value: Tensor  # (N,) detached: f, averaged over the samples at which it was evaluated
    surrogate: Tensor  # (N,) its gradient estimates that of -E f, for the logits and for the parameters of f


# --- checks of the input


def check_logits(logits: Tensor, estimator: str, categorical_form: bool = True) -> None:
    """Raise an error unless these are logits that the estimator can take."""
    check_tensor(logits, "logits")
    if logits.dim() == 3 and not categorical_form:
        raise ValueError(
            f"logits have shape {tuple(logits.shape)}, expected (N, units): {estimator} has no form for categorical "
            "variables; use disarm, common_random_numbers or leave_one_out"
        )
    if logits.dim() not in (2, 3) or 0 in logits.shape or not logits.is_floating_point():
        raise ValueError(
            f"logits have shape {tuple(logits.shape)} and are {logits.dtype}, expected floating-point (N, units) for "
            "Bernoulli variables or (N, units, states) for categorical ones; add the missing axis by unsqueeze"
        )
    if logits.dim() == 3 and logits.shape[-1] < 2:
        raise ValueError(f"logits have shape {tuple(logits.shape)}, expected at least 2 states; leave constants out")
    check_numbers(logits, "logits", logits.dim() == 3)


def check_tensor(logits: object, name: str) -> None:
    """Raise TypeError unless it is one."""
    if not isinstance(logits, Tensor):
        raise TypeError(
            f"{name} are a {type(logits).__name__}, expected a tensor; of a torch distribution give its .logits"
        )


def check_numbers(logits: Tensor, name: str, with_states: bool) -> None:
    """Raise FloatingPointError unless the logits are finite; on an axis of states all but one may be -inf."""
    if not bool(torch.isfinite(logits.amax(-1) if with_states else logits).all()):
        raise FloatingPointError(
            f"{name} range from {logits.min().item()} to {logits.max().item()}, expected finite numbers, or -inf for "
            "some states of a categorical variable; check the parameters"
        )


def check_uniform(values: Tensor, shape: tuple[int, ...], name: str, hint: str) -> None:
    """Raise ValueError unless the values have that shape and lie in [0, 1)."""
    if values.shape != shape:
        raise ValueError(f"{name} has shape {tuple(values.shape)}, expected {shape}; {hint}")
    check_range(values, name, hint)


def check_flips(flips: int | None, most: int) -> None:
    """Raise ValueError unless so many flips can be chosen among `most`."""
    if flips is not None and not (isinstance(flips, int) and 1 <= flips <= most):
        raise ValueError(f"flips is {flips}, expected a whole number from 1 to {most}, which is all; None means all")


# --- noise, samples, f


def noise_for(logits: Tensor, noise: Noise, generator: Generator, samples: int | None = None) -> Tensor:
    """Uniform numbers (N, units), or (samples, N, units): the given ones, after a check, or new ones.

    The noise of the first of several samples may be given alone, (N, units): the rest is drawn.
    """
    one = tuple(logits.shape[:2])
    if samples is None:
        return uniform_for(logits, noise, generator, one)
    if noise is None or noise.shape != one:
        return uniform_for(logits, noise, generator, (samples, *one))
    rest = uniform_for(logits, None, generator, (samples - 1, *one))
    return torch.cat([uniform_for(logits, noise, None, one)[None], rest])


def uniform_for(logits: Tensor, noise: Noise, generator: Generator, shape: tuple[int, ...]) -> Tensor:
    """Uniform numbers of that shape: the given ones, after a check, or new ones."""
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


def vectors(z: Tensor, logits: Tensor) -> Tensor:
    """Values in the form that a differentiable f takes: zeros and ones, or one-hot vectors of the states."""
    return z if logits.dim() == 2 else torch.nn.functional.one_hot(z, logits.shape[-1]).to(logits.dtype)


def as_seen(f: F, logits: Tensor, one_hot: bool) -> F:
    """f as a function of states, if it takes one-hot vectors of them."""
    return (lambda z: f(vectors(z, logits))) if one_hot and logits.dim() == 3 else f


def evaluate(f: F, z: Tensor) -> Tensor:
    """Checked f(z), (N,). f gets a copy, since it may change z in place, and the caller uses z again."""
    value = f(z.clone())
    if isinstance(value, Tensor) and z.dim() == 2 and not z.is_floating_point() and value.shape == z.shape:
        raise ValueError(
            f"f has shape {tuple(value.shape)}, expected ({len(z)},): logits of three axes are (N, units, states) of "
            "categorical variables; sum over units, or flatten the first axes of logits of Bernoulli variables"
        )
    return checked_f(value, len(z), lambda row: z[row].tolist())


def checked_f(value: Tensor, rows: int, states: Callable[[int], object]) -> Tensor:
    """Return the value of f if it is one finite number per row; `states(row)` describes z for the error message."""
    if not isinstance(value, Tensor):
        raise TypeError(f"f gives a {type(value).__name__}, expected a tensor of shape ({rows},); use torch.as_tensor")
    if value.shape != (rows,):
        raise ValueError(f"f has shape {tuple(value.shape)}, expected ({rows},); sum over all axes but the first")
    if not bool(torch.isfinite(value).all()):
        row = int((~torch.isfinite(value)).nonzero()[0])
        raise FloatingPointError(
            f"f is {value[row].item()} at {states(row)}, expected finite numbers; improbable states are tried, too: "
            "give the worst of them a finite value, or those that cannot occur a logit of -inf"
        )
    return value if value.is_floating_point() else value.to(torch.get_default_dtype())


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


# --- the answer


def per_logit(weights: Tensor, logits: Tensor) -> Tensor:
    """(N,) with trailing axes of size one, so that it can be multiplied by the logits."""
    return weights.view(-1, *[1] * (logits.dim() - 1))


def answer(value: Tensor, logits: Tensor, logit_grads: Tensor) -> Answer:
    """The surrogate -value, whose backward pass gives the logits -logit_grads, the estimate of -d E f / d logits."""
    check_graph(value, [logits])
    return Answer(value.detach(), -value - zero_with_gradient(logits, logit_grads))


def check_graph(value: Tensor, logits: Sequence[Tensor]) -> None:
    """Raise ValueError if f alone would be trained."""
    if value.requires_grad and not any(each.requires_grad for each in logits):
        raise ValueError(
            "logits have no gradient and f has one, expected logits that a net or a parameter made; if they are "
            "constants, draw z and differentiate f(z) alone"
        )


def zero_with_gradient(logits: Tensor, logit_grads: Tensor) -> Tensor:
    """(N,) zeros, whose backward pass gives the logits these gradients; nothing to a logit of -inf."""
    return (logit_grads.detach() * differential(logits)).flatten(1).sum(1)
