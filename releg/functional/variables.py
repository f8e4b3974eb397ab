"""What the estimators on plain logits share: the variables, checked input, and the answer.

Logits (N, units) are of Bernoulli variables, values z of which are (N, units) zeros and ones like the logits; logits
(N, units, states) are of categorical ones, with long values (N, units).
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


class Answer(NamedTuple):
    """What every estimator here answers: f is to grow, the surrogate to shrink."""

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
    """Uniform numbers of that shape, (N, units) by default: those given, checked, or drawn."""
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
    """The gradient of log q(z) by the logits, like them, for values (N, units)."""
    kind = bernoulli if logits.dim() == 2 else categorical
    return kind.score(logits.detach(), z)


def evaluate(f: F, z: Tensor) -> Tensor:
    """Checked f(z), (N,)."""
    return checked_f(f(z), len(z), lambda row: z[row].tolist())


def per_logit(weights: Tensor, logits: Tensor) -> Tensor:
    """(N,) with axes of size one behind, to be multiplied with the logits."""
    return weights.view(-1, *[1] * (logits.dim() - 1))


def answer(value: Tensor, logits: Tensor, logit_grads: Tensor) -> Answer:
    """-value, with logit_grads, the estimate of d E f / d logits, as what comes back to the logits."""
    adds_zero = (logit_grads.detach() * (logits - logits.detach())).flatten(1).sum(1)
    return Answer(value.detach(), -value - adds_zero)
