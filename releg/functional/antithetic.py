"""Estimators that compare a sample with its opposite; for Bernoulli variables only."""

from __future__ import annotations

import torch
from torch import Tensor

from releg.estimators.parts.pairs import arm_gradient, disarm_gradient, opposite_of
from releg.functional.variables import Answer, F, answer, check_logits, evaluate, noise_for, sample


def arm(logits: Tensor, f: F, noise: Tensor | None = None, generator: torch.Generator | None = None) -> Answer:
    """d E f / d logits = E[(f(opposite) - f(z)) (u - 1/2)], u the noise, opposite = 1[1 - u < mean].

    Yin & Zhou (2019), equation 7. Cost: two evaluations of f. Unbiased. Bernoulli variables only: what is called ARM
    for categorical ones (ARSM) is another formula.

    Args:
        logits: (N, units).
        f: z -> (N,).
        noise: (N, units), uniform; drawn if not given.
        generator: of the noise that is drawn here.
    """
    check_logits(logits, "arm", categorical_form=False)
    u = noise_for(logits, noise, generator)
    value, other = evaluate(f, sample(logits, u)), evaluate(f, opposite_of(logits.detach(), u))
    return answer((value + other) / 2, logits, arm_gradient(value.detach(), other.detach(), u))


def disarm(logits: Tensor, f: F, noise: Tensor | None = None, generator: torch.Generator | None = None) -> Answer:
    """d E f / d logits = E[(f(z) - f(opposite)) / 2 * (z - opposite) * sigmoid(|logits|)].

    Dong, Mnih & Tucker (2020), equation 6; U2G of Yin et al. (2020) is the same. It is ARM with its noise integrated
    out. Cost: two evaluations of f. Unbiased. Bernoulli variables only.

    Args:
        logits: (N, units).
        f: z -> (N,).
        noise: (N, units), uniform; drawn if not given.
        generator: of the noise that is drawn here.
    """
    check_logits(logits, "disarm", categorical_form=False)
    u = noise_for(logits, noise, generator)
    z, opposite = sample(logits, u), opposite_of(logits.detach(), u)
    value, other = evaluate(f, z), evaluate(f, opposite)
    gradient = disarm_gradient((value - other).detach(), z, opposite, logits.detach())
    return answer((value + other) / 2, logits, gradient)
