"""Estimators that differentiate f w.r.t. z. All are biased.

Each draws z with a derivative by the logits, and the estimate is the derivative of f at that z. In a graph of layers
the same z goes on to the layers after it. Categorical values are one-hot vectors: `one_hot` is there so that all
estimators are called alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from releg import bernoulli, categorical
from releg.checks import check_at_least
from releg.estimators.parts import relaxation
from releg.estimators.parts.categorical_slopes import categorical_rao, categorical_reinmax_variant, differential
from releg.estimators.parts.relaxation import check_temperature
from releg.estimators.parts.slopes import check_reinmax, rao_slope, reinmax_slope, reinmax_variant_slope
from releg.functional.variables import (
    Answer,
    F,
    Generator,
    Noise,
    check_graph,
    check_logits,
    differentiable,
    evaluate,
    noise_for,
    sample,
    uniform_for,
    vectors,
)

OneHot = Literal[True]


def straight_through(
    logits: Tensor, f: F, noise: Noise = None, generator: Generator = None, one_hot: OneHot = True
) -> Answer:
    """d f(z) / d z * d mean / d logits: the sample forwards, its mean backwards. BIASED unless f is linear in z.

    Bengio, Leonard & Courville (2013). Cost: one evaluation of f, and its derivative.

    Args:
        logits: (N, units) or (N, units, states).
        f: differentiable; of (N, units) zeros and ones, or of one-hot vectors (N, units, states), to (N,).
        noise: (N, units), uniform; drawn if not given.
        generator: of the noise that is drawn here.
        one_hot: f takes no other form of categorical variables.
    """
    check_logits(logits, "straight_through")
    sampler = relaxation.straight_through if logits.dim() == 2 else relaxation.categorical_straight_through
    return _at(f, sampler(logits, noise_for(logits, noise, generator)))


def gumbel_softmax(
    logits: Tensor,
    f: F,
    noise: Noise = None,
    generator: Generator = None,
    temperature: float = 0.5,
    one_hot: OneHot = True,
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
        one_hot: f takes no other form of categorical variables.
    """
    check_logits(logits, "gumbel_softmax")
    check_temperature(temperature, 0.5)
    relaxed = _concrete(logits, noise, generator, temperature)
    z = (relaxed > 0.5).to(logits.dtype) if logits.dim() == 2 else vectors(relaxed.argmax(-1), logits)
    with torch.no_grad():
        value = evaluate(f, z)
    return Answer(value, _at(f, relaxed).surrogate)


def _concrete(logits: Tensor, noise: Noise, generator: Generator, temperature: float) -> Tensor:
    if logits.dim() == 3 and noise is not None and noise.dim() == 2:
        z, further = _first_and_further(logits, noise, generator, 1)
        return categorical_rao(logits, z, further, temperature)  # the Gumbel noise given z
    uniform = uniform_for(logits, noise, generator, tuple(logits.shape))
    if logits.dim() == 2:
        return relaxation.concrete(temperature)(logits, uniform)
    return relaxation.categorical_concrete(logits, uniform, temperature)


def gumbel_rao(
    logits: Tensor,
    f: F,
    noise: Noise = None,
    generator: Generator = None,
    temperature: float = 0.5,
    draws: int = 10,
    one_hot: OneHot = True,
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
        one_hot: f takes no other form of categorical variables.
    """
    check_logits(logits, "gumbel_rao")
    check_temperature(temperature, 0.5)
    check_at_least("draws", draws, 1, "the default is 10")
    z, further = _first_and_further(logits, noise, generator, draws)
    if logits.dim() == 2:
        return _at(f, _with_slope(z, rao_slope(logits.detach(), z, further, temperature) * logits))
    return _at(f, _with_slope(z, categorical_rao(logits, z, further, temperature)))


def reinmax(
    logits: Tensor,
    f: F,
    noise: Noise = None,
    generator: Generator = None,
    temperature: float = 1.0,
    draws: int = 0,
    control: float = 0.0,
    one_hot: OneHot = True,
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
        one_hot: f takes no other form of categorical variables.
    """
    check_logits(logits, "reinmax")
    check_reinmax(temperature, draws, control)
    if draws:
        z, further = _first_and_further(logits, noise, generator, draws + bool(control))
    else:
        z, further = vectors(sample(logits, noise_for(logits, noise, generator)), logits), logits.new_empty(0)
    if logits.dim() == 2:
        slope = reinmax_variant_slope(logits.detach(), z, further, temperature, control)
        return _at(f, _with_slope(z, slope * logits))
    return _at(f, _with_slope(z, categorical_reinmax_variant(logits, z, further, temperature, control)))


def minimum_variance(
    logits: Tensor, f: F, noise: Noise = None, generator: Generator = None, one_hot: OneHot = True
) -> Answer:
    """The estimate that is exact where f is quadratic and, of all such, varies least for slopes of f at random. BIASED.

    Hooper & Shekhovtsov (2026) ask for the least variance; this is the answer for one-hot vectors, derived here. With
    states i and j it takes f(e_i) - f(e_j) for (g_i + g_j) . (e_i - e_j) / 2, g_i the slope at e_i, and spreads
    d E f / d logits over all pairs of states; ReinMax uses for each logit only the pairs with its own state. Both are
    the same for two states, so for Bernoulli variables. Cost: one evaluation of f, its derivative, and per variable a
    linear system with one equation for each state.

    Args:
        logits: (N, units) or (N, units, states).
        f: differentiable; of (N, units) zeros and ones, or of one-hot vectors (N, units, states), to (N,).
        noise: (N, units), uniform; drawn if not given.
        generator: of the noise that is drawn here.
        one_hot: f takes no other form of categorical variables.
    """
    check_logits(logits, "minimum_variance")
    z = vectors(sample(logits, noise_for(logits, noise, generator)), logits)
    if logits.dim() == 2:
        return _at(f, _with_slope(z, reinmax_slope(logits.detach(), z) * logits))
    slopes = _least_slopes(torch.softmax(logits.detach(), -1), z)
    return _at(f, z + (slopes * differential(logits)[..., None]).sum(-2))


def _least_slopes(q: Tensor, z: Tensor) -> Tensor:
    """d z_j / d logits_k at the sample z = e_i, (..., states k, states j).

    It is b_ij / q_i, b being for each k the flow with the least sum of b_ij^2 / q_i that is antisymmetric, as exactness
    for quadratic f asks, and brings d q_j / d logits_k / 2 to every j. So b_ij = (l_j - l_i) q_i q_j / (q_i + q_j), as
    in a net of resistors, with potentials l from a linear system, here divided by q_j row by row.
    """
    q = q.clamp(min=torch.finfo(q.dtype).tiny)
    eye = torch.eye(q.shape[-1], dtype=q.dtype, device=q.device)
    share = q[..., None, :] / (q[..., None, :] + q[..., :, None]) * (1 - eye)  # q_j / (q_i + q_j)
    system = torch.diag_embed(share.sum(-1)) - share + q[..., None, :]  # the last term fixes the sum of q l to zero
    potential = torch.linalg.solve(system, (eye - q[..., None, :]) / 2)  # (..., j, k)
    drop = potential - (potential * z[..., :, None]).sum(-2, keepdim=True)  # l_j - l_i
    other = drop.transpose(-1, -2) * (share * z[..., :, None]).sum(-2, keepdim=True)
    return other + (z - q)[..., :, None] / 2 * z[..., None, :]


def _first_and_further(logits: Tensor, noise: Noise, generator: Generator, count: int) -> tuple[Tensor, Tensor]:
    """z, zeros and ones or one-hot vectors, and `count` further uniform arrays like the logits.

    The noise is (1 + count, *shape of the logits), or (N, units) of z alone.
    """
    if noise is not None and noise.shape == logits.shape[:2]:
        drawn = sample(logits, noise_for(logits, noise, None))
        return vectors(drawn, logits), uniform_for(logits, None, generator, (count, *logits.shape))
    uniform, constant = uniform_for(logits, noise, generator, (1 + count, *logits.shape)), logits.detach()
    if logits.dim() == 2:
        return bernoulli.sample(constant, uniform[0]), uniform[1:]
    return vectors(categorical.gumbel_max(constant, uniform[0]), logits), uniform[1:]


def _with_slope(z: Tensor, like_z: Tensor) -> Tensor:
    """z, with the derivative of like_z by the logits."""
    return z + (like_z - like_z.detach())


def _at(f: F, z: Tensor) -> Answer:
    value = differentiable(f, z)
    check_graph(value, [z])
    return Answer(value.detach(), -value)


RELAXED: tuple[Callable[..., Answer], ...] = (straight_through, gumbel_softmax, gumbel_rao, reinmax, minimum_variance)
