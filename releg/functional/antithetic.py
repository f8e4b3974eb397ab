"""Estimators that compare a sample with antithetic ones; all but DisARM for Bernoulli variables only."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from releg.checks import check_at_least
from releg.estimators.parts.antithetic import antithetic_gradient, arm_gradient, opposite_of
from releg.estimators.parts.copula import both_given_one, coupled_gradient, coupled_samples
from releg.estimators.parts.multi_sample import bound_changes
from releg.functional import tree
from releg.functional.variables import (
    Answer,
    F,
    Generator,
    Noise,
    answer,
    as_seen,
    check_logits,
    evaluate,
    noise_for,
    sample,
)


def arm(logits: Tensor, f: F, noise: Noise = None, generator: Generator = None) -> Answer:
    """d E f / d logits = E[(f(opposite) - f(z)) (u - 1/2)], u the noise, opposite = 1[1 - u < mean].

    Yin & Zhou (2019), equation 7. Cost: two evaluations of f. Unbiased. Bernoulli variables only: the
    categorical version (ARSM) is a different formula.

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


def disarm(logits: Tensor, f: F, noise: Noise = None, generator: Generator = None, one_hot: bool = False) -> Answer:
    """d E f / d logits = E[(f(z) - f(opposite)) / 2 * (z - opposite) * sigmoid(|logits|)].

    Dong, Mnih & Tucker (2020), equation 6; U2G of Yin et al. (2020) is the same. It is ARM with its noise integrated
    out. A categorical variable is a tree of Bernoulli variables, as in DisARM-Tree of Dong, Mnih & Tucker (2021); see
    `releg.functional.tree`. Cost: two evaluations of f. Unbiased.

    Args:
        logits: (N, units) or (N, units, states).
        f: z -> (N,).
        noise: (N, units), uniform; for categorical variables (2, N, units), of the sample and of its opposite; drawn if
            not given.
        generator: of the noise that is drawn here.
        one_hot: call f with one-hot vectors (N, units, states) of categorical variables instead of states (N, units).
    """
    check_logits(logits, "disarm")
    f, constant = as_seen(f, logits, one_hot), logits.detach()
    if logits.dim() == 2:
        u = noise_for(logits, noise, generator)
        z, opposite = sample(logits, u), opposite_of(constant, u)
    else:
        u = noise_for(logits, noise, generator, 2)
        z = sample(logits, u[0])
        opposite = tree.opposite_of(constant, z, u[1])
    value, other = evaluate(f, z), evaluate(f, opposite)
    gradient = antithetic_gradient if logits.dim() == 2 else tree.antithetic_gradient
    return answer((value + other) / 2, logits, gradient((value - other).detach(), z, opposite, constant))


def arms(logits: Tensor, f: F, noise: Noise = None, generator: Generator = None, samples: int = 4) -> Answer:
    """d E f / d logits = E[mean over k of (f_k - mean f) (z_k - p) K/(K-1) p(1-p)/(p - P11)], z_k antithetic.

    Dimitriev & Zhou (2021), ARMS with the Dirichlet copula; P11 is the probability that two samples are both 1. With
    two samples it is DisARM. Cost: `samples` evaluations of f, one after the other. Unbiased. Bernoulli variables only.

    Args:
        logits: (N, units).
        f: z -> (N,).
        noise: (samples, N, units), uniform: first for the first sample, then for coupling the others to it; drawn if
            not given.
        generator: of the noise that is drawn here.
        samples: K, draws of z per row.
    """
    check_logits(logits, "arms", categorical_form=False)
    check_at_least("samples", samples, 2, "a sample is compared with the others")
    u, constant = noise_for(logits, noise, generator, samples), logits.detach()
    z = torch.cat([sample(logits, u[:1]), coupled_samples(constant, u[0], u[1:])])  # (K, N, units)
    values = torch.stack([evaluate(f, each) for each in z])  # (K, N)
    gradient = coupled_gradient(values.detach(), z, constant, both_given_one(constant, samples))
    return answer(values.mean(0), logits, gradient)


def local_disarm(logits: Tensor, f: F, noise: Noise = None, generator: Generator = None, samples: int = 2) -> Answer:
    """disarm for the multi-sample bound E[log mean over k of exp f(z_k)], every sample compared with its opposite.

    Dong, Mnih & Tucker (2020), the local version: it uses the change of the bound when one sample is replaced. The
    value is the bound. Where f contains -log q, do not detach it: its expected gradient under the bound is not zero.
    Cost: 2 `samples` evaluations of f, one after the other. Unbiased, for the bound. Bernoulli variables only.

    Args:
        logits: (N, units).
        f: z -> (N,).
        noise: (samples, N, units), uniform; drawn if not given.
        generator: of the noise that is drawn here.
        samples: K, draws of z per row.
    """
    check_logits(logits, "local_disarm", categorical_form=False)
    check_at_least("samples", samples, 2, "with one sample the bound is E f, and disarm estimates its gradient")
    u, constant = noise_for(logits, noise, generator, samples), logits.detach()
    z, opposites = sample(logits, u), opposite_of(constant, u)  # (K, N, units)
    values = torch.stack([evaluate(f, each) for each in z], 1)  # (N, K)
    with torch.no_grad():
        changes = bound_changes(values, torch.stack([evaluate(f, each) for each in opposites], 1))
    pulls = [antithetic_gradient(changes[:, k], z[k], opposites[k], constant) for k in range(samples)]
    return answer(values.logsumexp(1) - math.log(samples), logits, torch.stack(pulls).sum(0))
