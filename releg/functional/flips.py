"""Estimators on one layer that set single variables to other states: common random numbers, with all or few flips."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from releg.discrete.chances import flip_chances, gradient_of_mean
from releg.discrete.estimate import checked_f
from releg.discrete.model import check_uniform
from releg.estimators.parts.antithetic import antithetic_gradient, opposite_of
from releg.estimators.parts.flips import clipped
from releg.functional.variables import Answer, F, answer, check_logits, evaluate, noise_for, sample
from releg.systematic_sampling import chosen as chosen_by


def common_random_numbers(
    logits: Tensor,
    f: F,
    noise: Tensor | None = None,
    generator: torch.Generator | None = None,
    flips: int | None = None,
    choice: Tensor | None = None,
    at_once: int = 1,
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
        at_once: how many flips to evaluate per call of f, with torch.vmap: f must then use torch functions only, and no
            `if` on values. For models that take x, `releg.gradient` batches flips without vmap.
    """
    check_logits(logits, "common_random_numbers")
    if flips is not None and flips < 1:
        raise ValueError(f"flips is {flips}, expected at least 1; None evaluates all flips")
    if at_once < 1:
        raise ValueError(f"at_once is {at_once}, expected at least 1; 1 calls f without torch.vmap")
    z = sample(logits, noise_for(logits, noise, generator))
    value = evaluate(f, z)
    chance = None if flips is None else flip_chances(logits.detach(), z, flips)
    return answer(
        value, logits, _flip_gradient(logits.detach(), f, z, value.detach(), chance, choice, generator, at_once)
    )


def pruned(
    logits: Tensor,
    f: F,
    noise: Tensor | None = None,
    generator: torch.Generator | None = None,
    flips: int = 1,
    choice: Tensor | None = None,
) -> Answer:
    """common_random_numbers with `flips` flips per row, one by default: the pruning of stochastic triples.

    Arya, Schauer, Schafer & Rackauckas (2022). Cost: 1 + flips evaluations of f. Unbiased. Arguments as there.
    """
    return common_random_numbers(logits, f, noise, generator, flips, choice)


def bitflip(
    logits: Tensor,
    f: F,
    noise: Tensor | None = None,
    generator: torch.Generator | None = None,
    choice: Tensor | None = None,
) -> Answer:
    """common_random_numbers with one flip per row; every unit and other state is equally likely.

    Kunes et al. (2023), bitflip-1. Cost: two evaluations of f. Unbiased; `pruned` has no larger variance if all
    changes of f have the same size. Arguments as for common_random_numbers.
    """
    check_logits(logits, "bitflip")
    z = sample(logits, noise_for(logits, noise, generator))
    value = evaluate(f, z)
    return answer(value, logits, _even_flip(logits.detach(), f, z, value.detach(), choice, generator))


def ugc(
    logits: Tensor,
    f: F,
    noise: Tensor | None = None,
    generator: torch.Generator | None = None,
    choice: Tensor | None = None,
) -> Answer:
    """For each variable, bitflip's estimate where min(mean, 1 - mean) < 1 / (2 units), else DisARM's.

    Kunes et al. (2023), unbiased gradient variance clipping: it takes the one that varies less. Cost: three
    evaluations of f. Unbiased. Bernoulli variables only. Arguments as for common_random_numbers.
    """
    check_logits(logits, "ugc", categorical_form=False)
    u, constant = noise_for(logits, noise, generator), logits.detach()
    z, opposite = sample(logits, u), opposite_of(constant, u)
    value, other = evaluate(f, z), evaluate(f, opposite)
    antithetic = antithetic_gradient((value - other).detach(), z, opposite, constant)
    flipped = _even_flip(constant, f, z, value.detach(), choice, generator)
    return answer((value + other) / 2, logits, clipped(constant, flipped, antithetic))


def _even_flip(
    logits: Tensor, f: F, z: Tensor, value: Tensor, choice: Tensor | None, generator: torch.Generator | None
) -> Tensor:
    """d E f / d logits from one flip per row, all with the same chance."""
    states = 2 if logits.dim() == 2 else logits.shape[-1]
    chance = (1 - one_hot(z.long(), states)) / (z.shape[1] * (states - 1))
    return _flip_gradient(logits, f, z, value, chance, choice, generator, 1)


@torch.no_grad()
def _flip_gradient(
    logits: Tensor,
    f: F,
    z: Tensor,
    value: Tensor,
    chance: Tensor | None,
    choice: Tensor | None,
    generator: torch.Generator | None,
    at_once: int,
) -> Tensor:
    """d E f / d logits from the flips of z that are chosen with these chances (N, units, states); None: from all."""
    states = 2 if logits.dim() == 2 else logits.shape[-1]
    wanted = ~one_hot(z.long(), states).bool().flatten(1)  # (N, units * states): which entries are flips
    weight = torch.ones_like(wanted, dtype=value.dtype)
    if chance is not None:
        chance = chance.flatten(1)
        wanted &= chosen_by(chance, _uniform(chance, choice, generator)[:, None])
        weight = 1 / chance.clamp(min=torch.finfo(chance.dtype).tiny)
    changes = torch.where(wanted, _changes(f, z, value, wanted, states, at_once) * weight, 0)
    return gradient_of_mean(logits, changes.to(logits.dtype).view(*z.shape, states))


def _changes(f: F, z: Tensor, value: Tensor, chosen: Tensor, states: int, at_once: int) -> Tensor:
    """f after the chosen flips minus f before, (N, units * states); other entries are meaningless.

    The j-th call of f makes the j-th chosen flip of every row.
    """
    index = chosen.to(torch.int8).sort(dim=1, descending=True, stable=True).indices
    index = index[:, : int(chosen.sum(1).max())].T  # (calls, N)
    units, new_states = (index // states)[..., None], (index % states)[..., None].to(z.dtype)
    flipped = z.expand(len(index), -1, -1).scatter(2, units, new_states)  # (calls, N, units)
    values = [evaluate(f, each) for each in flipped] if at_once == 1 else _mapped(f, flipped, at_once)
    changes = torch.zeros_like(chosen, dtype=value.dtype)
    for j, after in enumerate(values):
        changes.scatter_(1, index[j][:, None], (after - value)[:, None])
    return changes


def _mapped(f: F, flipped: Tensor, at_once: int) -> list[Tensor]:
    """f of each of (calls, N, units), many at a time."""
    values = torch.vmap(f, chunk_size=at_once)(flipped)
    if values.shape != flipped.shape[:2]:
        raise ValueError(f"f has shape {tuple(values.shape[1:])}, expected ({flipped.shape[1]},); sum over the others")
    states = flipped.flatten(0, 1)
    return list(checked_f(values.flatten(), len(states), lambda row: states[row].tolist()).view(values.shape))


def _uniform(chance: Tensor, choice: Tensor | None, generator: torch.Generator | None) -> Tensor:
    if choice is None:
        return torch.rand(len(chance), generator=generator, dtype=chance.dtype, device=chance.device)
    check_uniform(choice, (len(chance),), "choice", "give one uniform number per row, or none at all")
    return choice.to(chance.dtype)
