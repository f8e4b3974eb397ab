"""Estimators that differentiate f by z. All are biased."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from releg import bernoulli, categorical
from releg.estimators.parts import relaxation
from releg.estimators.parts.slopes import reinmax_slope
from releg.functional.variables import Answer, F, check_logits, evaluate, noise_for


def straight_through(
    logits: Tensor, f: F, noise: Tensor | None = None, generator: torch.Generator | None = None
) -> Answer:
    """d f(z) / d z * d mean / d logits: the sample forwards, its mean backwards. BIASED, but where f is linear in z.

    Bengio, Leonard & Courville (2013). Cost: one evaluation of f, and its derivative.

    Args:
        logits: (N, units) or (N, units, states).
        f: differentiable; of (N, units) zeros and ones, or of one-hot vectors (N, units, states), to (N,).
        noise: (N, units), uniform; drawn if not given.
        generator: of the noise that is drawn here.
    """
    check_logits(logits, "straight_through")
    uniform = noise_for(logits, noise, generator)
    sampler = relaxation.straight_through if logits.dim() == 2 else relaxation.categorical_straight_through
    value = _differentiable(f, sampler(logits, uniform))
    return Answer(value.detach(), -value)


def gumbel_softmax(
    logits: Tensor,
    f: F,
    noise: Tensor | None = None,
    generator: torch.Generator | None = None,
    temperature: float = 0.5,
) -> Answer:
    """The derivative of f at softmax((logits + Gumbel noise) / temperature). BIASED.

    Jang, Gu & Poole (2017); Maddison, Mnih & Teh (2017). For Bernoulli variables sigmoid((logits - logit(noise)) /
    temperature), the binary concrete distribution. The value is f at the discrete sample of the same noise. Cost: two
    evaluations of f, and one derivative.

    Args:
        logits: (N, units) or (N, units, states).
        f: differentiable; of (N, units) in [0, 1], or of vectors (N, units, states) on the simplex, to (N,).
        noise: uniform, of the shape of the logits; drawn if not given.
        generator: of the noise that is drawn here.
        temperature: the higher, the smoother and the more biased.
    """
    check_logits(logits, "gumbel_softmax")
    _check_temperature(temperature, 0.5)
    uniform = noise_for(logits, noise, generator, tuple(logits.shape))
    if logits.dim() == 2:
        relaxed, z = relaxation.concrete(temperature)(logits, uniform), bernoulli.sample(logits.detach(), uniform)
    else:
        relaxed = relaxation.categorical_concrete(logits, uniform, temperature)
        z = one_hot(categorical.gumbel_max(logits.detach(), uniform), logits.shape[-1]).to(logits.dtype)
    with torch.no_grad():
        value = evaluate(f, z)
    return Answer(value, -_differentiable(f, relaxed))


def reinmax(
    logits: Tensor,
    f: F,
    noise: Tensor | None = None,
    generator: torch.Generator | None = None,
    temperature: float = 1.0,
) -> Answer:
    """Straight-through of second order: for Bernoulli variables d z / d logits = 2 q (1-q) - p (1-p) / 2. BIASED.

    Liu, Dong, Liu, Yu & Gao (2023), q = (p + z) / 2: Heun's method where straight-through is Euler's, exact where f is
    quadratic. Cost: one evaluation of f, and its derivative.

    Args:
        logits: (N, units) or (N, units, states).
        f: differentiable; of (N, units) zeros and ones, or of one-hot vectors (N, units, states), to (N,).
        noise: (N, units), uniform; drawn if not given.
        generator: of the noise that is drawn here.
        temperature: of p in q.
    """
    check_logits(logits, "reinmax")
    _check_temperature(temperature, 1)
    uniform, constant = noise_for(logits, noise, generator), logits.detach()
    if logits.dim() == 2:
        z = bernoulli.sample(constant, uniform)
        sloped = z + reinmax_slope(constant, z, temperature) * (logits - constant)  # adds zero
    else:
        z = one_hot(categorical.sample(constant, uniform), logits.shape[-1]).to(logits.dtype)
        sloped = relaxation.categorical_reinmax(logits, z, temperature)
    value = _differentiable(f, sloped)
    return Answer(value.detach(), -value)


def _check_temperature(temperature: float, usual: float) -> None:
    if temperature <= 0:
        raise ValueError(f"temperature is {temperature}, expected a positive number; the default is {usual}")


def _differentiable(f: F, z: Tensor) -> Tensor:
    """f(z), which must depend on z in a way that autograd can follow."""
    value = evaluate(f, z)
    if z.requires_grad and not value.requires_grad:
        raise ValueError(
            "f is not differentiable by z (its result has no gradient function), expected torch functions of z; use "
            "common_random_numbers, which needs no derivative"
        )
    return value
