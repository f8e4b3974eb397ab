"""Estimators on one layer that set single variables to other states: common random numbers, with all or few flips."""

from __future__ import annotations

import torch
from torch import Tensor

from releg.estimators.parts.antithetic import antithetic_gradient, opposite_of
from releg.estimators.parts.flips import clipped
from releg.functional.flip_probabilities import choose, even_probabilities, flip_probabilities, gradient_of_mean
from releg.functional.variables import (
    Answer,
    F,
    Generator,
    Noise,
    answer,
    as_seen,
    check_flips,
    check_logits,
    evaluate,
    noise_for,
    sample,
)


def common_random_numbers(
    logits: Tensor,
    f: F,
    noise: Noise = None,
    generator: Generator = None,
    flips: int | None = None,
    choice: Tensor | None = None,
    one_hot: bool = False,
) -> Answer:
    """d E f / d logits_i = E[sum_k f(z with z_i = k) d q(z_i = k) / d logits_i].

    Tokui & Sato (2016), equation 2. On one layer it is also the local expectation gradient (Titsias & Lazaro-Gredilla
    2015), RAM (Tokui & Sato 2017) and IndeCateR (De Smet et al. 2023). Cost: 1 + units * (states - 1) evaluations of f,
    or 1 + flips. Unbiased.

    Args:
        logits: (N, units) or (N, units, states).
        f: z -> (N,).
        noise: (N, units), uniform; drawn if not given.
        generator: draws the noise and the choice if they are not given.
        flips: how many flips to evaluate per row; None: all. They are chosen at random, in proportion to their part in
            the gradient, and reweighted, which keeps the estimate unbiased.
        choice: (N,) uniform numbers that choose the flips; drawn if not given.
        one_hot: call f with one-hot vectors (N, units, states) of categorical variables instead of states (N, units).
    """
    check_logits(logits, "common_random_numbers")
    check_flips(flips, logits[0].numel() if logits.dim() == 2 else logits.shape[1] * (logits.shape[2] - 1))
    f = as_seen(f, logits, one_hot)
    z = sample(logits, noise_for(logits, noise, generator))
    value = evaluate(f, z)
    probabilities = None if flips is None else flip_probabilities(logits.detach(), z, flips)
    return answer(
        value, logits, _flip_gradient(logits.detach(), f, z, value.detach(), probabilities, choice, generator)
    )


def pruned(
    logits: Tensor,
    f: F,
    noise: Noise = None,
    generator: Generator = None,
    flips: int = 1,
    choice: Tensor | None = None,
    one_hot: bool = False,
) -> Answer:
    """common_random_numbers with `flips` flips per row, one by default: the pruning of stochastic triples.

    Arya, Schauer, Schafer & Rackauckas (2022). Cost: 1 + flips evaluations of f. Unbiased. Arguments as there.
    """
    return common_random_numbers(logits, f, noise, generator, flips, choice, one_hot)


def bitflip(
    logits: Tensor,
    f: F,
    noise: Noise = None,
    generator: Generator = None,
    choice: Tensor | None = None,
    one_hot: bool = False,
) -> Answer:
    """common_random_numbers with one flip per row; every unit and other state is equally likely.

    Kunes et al. (2023), bitflip-1. Cost: two evaluations of f. Unbiased; `pruned` has no larger variance if all
    changes of f have the same size. Arguments as for common_random_numbers.
    """
    check_logits(logits, "bitflip")
    f = as_seen(f, logits, one_hot)
    z = sample(logits, noise_for(logits, noise, generator))
    value = evaluate(f, z)
    even = even_probabilities(logits.detach(), z)
    return answer(value, logits, _flip_gradient(logits.detach(), f, z, value.detach(), even, choice, generator))


def ugc(logits: Tensor, f: F, noise: Noise = None, generator: Generator = None, choice: Tensor | None = None) -> Answer:
    """For each variable, bitflip's estimate where min(mean, 1 - mean) < 1 / (2 units), else DisARM's.

    Kunes et al. (2023), unbiased gradient variance clipping: it takes the one that varies less. Cost: three
    evaluations of f. Unbiased. Bernoulli variables only. Arguments as for common_random_numbers.
    """
    check_logits(logits, "ugc", categorical_form=False)
    u, constant = noise_for(logits, noise, generator), logits.detach()
    z, opposite = sample(logits, u), opposite_of(constant, u)
    value, other = evaluate(f, z), evaluate(f, opposite)
    antithetic = antithetic_gradient((value - other).detach(), z, opposite, constant)
    even = even_probabilities(constant, z)
    flipped = _flip_gradient(constant, f, z, value.detach(), even, choice, generator)
    return answer((value + other) / 2, logits, clipped(constant, flipped, antithetic))


@torch.no_grad()
def _flip_gradient(
    logits: Tensor,
    f: F,
    z: Tensor,
    value: Tensor,
    probabilities: Tensor | None,
    choice: Tensor | None,
    generator: torch.Generator | None,
) -> Tensor:
    """d E f / d logits from flips of z chosen with these probabilities (N, units, states); None: from all."""
    wanted, weight = choose(logits, z, probabilities, choice, generator)
    changes = torch.where(wanted, _changes(f, z, value, wanted) * weight, 0)
    return gradient_of_mean(logits, changes.to(logits.dtype))


def _changes(f: F, z: Tensor, value: Tensor, chosen: Tensor) -> Tensor:
    """f after the chosen flips minus f before, (N, units, states); other entries are meaningless.

    The j-th call of f makes the j-th chosen flip of every row.
    """
    states, flat = chosen.shape[-1], chosen.flatten(1)
    index = flat.to(torch.int8).sort(dim=1, descending=True, stable=True).indices
    no_flip = z[:, :1].long()  # the first unit to its own state: for rows that have fewer flips than others
    changes = torch.zeros_like(flat, dtype=value.dtype)
    for j in range(int(flat.sum(1).max())):
        flip = torch.where(flat.gather(1, index[:, j : j + 1]), index[:, j : j + 1], no_flip)
        flipped = z.scatter(1, flip // states, (flip % states).to(z.dtype))
        changes.scatter_(1, flip, (evaluate(f, flipped) - value)[:, None])
    return changes.view(chosen.shape)
