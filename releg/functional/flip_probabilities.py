"""The gradient computed from flips, and the probability of simulating each flip when only some are simulated.

Dividing a value by its probability of being chosen keeps the sum unbiased (Horvitz & Thompson 1952).
"""

from __future__ import annotations

import torch
from torch import Tensor

from releg import bernoulli, categorical
from releg.functional.variables import Generator, check_uniform
from releg.systematic_sampling import chosen, proportional


def gradient_of_mean(logits: Tensor, f_k: Tensor) -> Tensor:
    """sum_k f_k d q(k) / d logits, in the shape of the logits; f_k (N, units, states) is known up to a constant.

    The logits are (N, units, states), or (N, units) logits of means: then the result is (f_1 - f_0) mean (1 - mean).
    """
    if logits.dim() == 2:
        return (f_k[..., 1] - f_k[..., 0]) * bernoulli.variance(logits)
    return categorical.gradient_by_logits(logits, f_k)


def possible_flips(logits: Tensor, z: Tensor) -> Tensor:
    """Whether a unit can change to a state, (N, units, states): to any but its own, unless that has a logit of -inf."""
    states = 2 if logits.dim() == 2 else logits.shape[-1]
    others = z[..., None] != torch.arange(states, device=z.device)
    return others if logits.dim() == 2 else others & (logits > -torch.inf)


@torch.no_grad()
def flip_probabilities(logits: Tensor, z: Tensor, flips: int) -> Tensor:
    """The probability of simulating each unit's change to each state, (N, units, states); they sum to `flips`.

    Proportional to the length of gradient_of_mean per change of f: q_k |one_hot(k) - q|. Sums use float64 if the
    device has it.
    """
    possible = possible_flips(logits, z)
    if logits.dim() == 2:
        weights = bernoulli.variance(logits)[..., None].expand(-1, -1, 2)
    else:
        q = torch.softmax(logits, -1)
        weights = q * ((1 - q).square() + q.square().sum(-1, keepdim=True) - q.square()).sqrt()
    units, states = weights.shape[1:]
    if flips >= units * (states - 1):
        return possible.to(weights.dtype)
    weights = weights * possible
    weights = weights if weights.device.type == "mps" else weights.double()
    return proportional(weights.flatten(1), flips).view(weights.shape)


def even_probabilities(logits: Tensor, z: Tensor) -> Tensor:
    """Those of one flip, all possible ones being equally likely: (N, units, states)."""
    possible = possible_flips(logits, z).to(logits.dtype)
    return possible / possible.sum((1, 2), keepdim=True).clamp(min=1)


def choose(
    logits: Tensor, z: Tensor, probabilities: Tensor | None, choice: Tensor | None, generator: Generator
) -> tuple[Tensor, Tensor]:
    """Which flips to simulate, (N, units, states), and by what to multiply their changes of f: the same shape, or one.

    Args:
        logits: (N, units) or (N, units, states).
        z: (N, units), the sample.
        probabilities: of simulating each flip, (N, units, states); None: all flips.
        choice: (N,) uniform numbers that choose them; drawn if not given.
        generator: of the choice that is drawn here.
    """
    wanted = possible_flips(logits, z)
    if probabilities is None:
        return wanted, logits.new_ones(())
    by_row = probabilities.flatten(1)
    if choice is None:
        choice = torch.rand(len(by_row), generator=generator, dtype=by_row.dtype, device=by_row.device)
    check_uniform(choice, (len(by_row),), "choice", "give one uniform number per row, or none at all")
    wanted &= chosen(by_row, choice.to(by_row.dtype)[:, None]).view(wanted.shape)
    return wanted, 1 / probabilities.clamp(min=torch.finfo(probabilities.dtype).tiny)
