"""Estimators that differentiate f w.r.t. z. All are biased."""

from __future__ import annotations

import torch
from torch import Tensor

from releg import bernoulli, categorical
from releg.estimators.parts import relaxation
from releg.estimators.parts.categorical_slopes import categorical_rao, categorical_reinmax_variant
from releg.estimators.parts.relaxation import check_temperature
from releg.estimators.parts.slopes import check_reinmax, rao_slope, reinmax_variant_slope
from releg.functional.variables import Answer, F, check_logits, differentiable, evaluate, noise_for, sample, vectors


def straight_through(
    logits: Tensor, f: F, noise: Tensor | None = None, generator: torch.Generator | None = None
) -> Answer:
    """d f(z) / d z * d mean / d logits: the sample forwards, its mean backwards. BIASED unless f is linear in z.

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
    value = differentiable(f, sampler(logits, uniform))
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
    check_temperature(temperature, 0.5)
    uniform = noise_for(logits, noise, generator, tuple(logits.shape))
    if logits.dim() == 2:
        relaxed, z = relaxation.concrete(temperature)(logits, uniform), bernoulli.sample(logits.detach(), uniform)
    else:
        relaxed = relaxation.categorical_concrete(logits, uniform, temperature)
        z = vectors(categorical.gumbel_max(logits.detach(), uniform), logits)
    with torch.no_grad():
        value = evaluate(f, z)
    return Answer(value, -differentiable(f, relaxed))


def gumbel_rao(
    logits: Tensor,
    f: F,
    noise: Tensor | None = None,
    generator: torch.Generator | None = None,
    temperature: float = 0.5,
    draws: int = 10,
) -> Answer:
    """The sample forwards; backwards the mean slope of `draws` gumbel_softmax variables drawn given the sample. BIASED.

    Paulus, Maddison & Krause (2021): straight-through Gumbel-softmax, Rao-Blackwellised. Cost: one evaluation of f, and
    its derivative.

    Args:
        logits: (N, units) or (N, units, states).
        f: differentiable; of (N, units) zeros and ones, or of one-hot vectors (N, units, states), to (N,).
        noise: (1 + draws, *shape of the logits), uniform: first for the sample, then for the draws given it; drawn if
            not given.
        generator: of the noise that is drawn here.
        temperature: the higher, the smoother and the more biased.
        draws: the more, the less variance.
    """
    check_logits(logits, "gumbel_rao")
    check_temperature(temperature, 0.5)
    if draws < 1:
        raise ValueError(f"draws is {draws}, expected at least 1; the default is 10")
    uniform = noise_for(logits, noise, generator, (1 + draws, *logits.shape))
    z = _first_sample(logits, uniform)
    if logits.dim() == 2:
        return _along(f, z, rao_slope(logits.detach(), z, uniform[1:], temperature) * logits)
    return _along(f, z, categorical_rao(logits, z, uniform[1:], temperature))


def reinmax(
    logits: Tensor,
    f: F,
    noise: Tensor | None = None,
    generator: torch.Generator | None = None,
    temperature: float = 1.0,
    draws: int = 0,
    control: float = 0.0,
) -> Answer:
    """Straight-through of second order: for Bernoulli variables d z / d logits = 2 q (1-q) - p (1-p) / 2. BIASED.

    Liu, Dong, Liu, Yu & Gao (2023), q = (p + z) / 2: Heun's method where straight-through is Euler's, exact where f is
    quadratic. With `draws`, the variants ReinMax-Rao and, with `control`, ReinMax-CV of Wang & Bui (2026): see
    `releg.ReinMax`. Cost: one evaluation of f, and its derivative.

    Args:
        logits: (N, units) or (N, units, states).
        f: differentiable; of (N, units) zeros and ones, or of one-hot vectors (N, units, states), to (N,).
        noise: (N, units), uniform; with draws (1 + draws, *shape of the logits), and one more with control: of the
            sample, then of the concrete variables; drawn if not given.
        generator: of the noise that is drawn here.
        temperature: of p in q, or of the concrete variables of both variants.
        draws: of concrete variables per sample; 0: neither variant.
        control: 0: ReinMax-Rao, else ReinMax-CV with this factor.
    """
    check_logits(logits, "reinmax")
    check_reinmax(temperature, draws, control)
    if draws:
        uniform = noise_for(logits, noise, generator, (1 + draws + bool(control), *logits.shape))
        z, further = _first_sample(logits, uniform), uniform[1:]
    else:
        z, further = vectors(sample(logits, noise_for(logits, noise, generator)), logits), logits.new_empty(0)
    if logits.dim() == 2:
        return _along(f, z, reinmax_variant_slope(logits.detach(), z, further, temperature, control) * logits)
    return _along(f, z, categorical_reinmax_variant(logits, z, further, temperature, control))


def _first_sample(logits: Tensor, noise: Tensor) -> Tensor:
    """z from noise[0], which has the shape of the logits: zeros and ones, or one-hot vectors."""
    constant = logits.detach()
    drawn = bernoulli.sample(constant, noise[0]) if logits.dim() == 2 else categorical.gumbel_max(constant, noise[0])
    return vectors(drawn, logits)


def _along(f: F, z: Tensor, like_z: Tensor) -> Answer:
    """f at z, with the derivative of like_z as d z / d logits."""
    value = differentiable(f, z + (like_z - like_z.detach()))
    return Answer(value.detach(), -value)
