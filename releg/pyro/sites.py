"""The distributions of a guide's sites: which are discrete, their logits, and values made from given noise."""

from __future__ import annotations

from typing import Any

import torch
from pyro.distributions.torch_distribution import ExpandedDistribution, MaskedDistribution
from torch import Tensor
from torch.distributions import (
    Bernoulli,
    Categorical,
    Independent,
    Normal,
    OneHotCategorical,
    TransformedDistribution,
)
from torch.nn.functional import one_hot

from releg import bernoulli, categorical

WRAPPERS = (Independent, MaskedDistribution, ExpandedDistribution)  # they change shapes and densities, not values
DISCRETE = (Bernoulli, Categorical, OneHotCategorical)
CERTAIN = 1e4  # the logit of a state that has all of the probability; minus this, of one that cannot occur


def innermost(distribution: Any) -> Any:
    """The distribution without to_event, mask and expand."""
    while isinstance(distribution, WRAPPERS):
        distribution = distribution.base_dist
    return distribution


def is_discrete(distribution: Any) -> bool:
    """Whether it is one of those whose gradient is estimated from flips; relaxed ones count as continuous."""
    return isinstance(innermost(distribution), DISCRETE) and not distribution.has_rsample


def logits_of(distribution: Any) -> Tensor:
    """The logits of all variables, in the graph of the parameters: (batch, event), states on a last axis of their own.

    Impossible states are marked by CERTAIN, and have no gradient.
    """
    base = innermost(distribution)
    shape = distribution.batch_shape + distribution.event_shape
    if isinstance(base, Bernoulli):
        certainly_zero, certainly_one = _at_the_ends(base)
        logits = torch.where(certainly_zero, -CERTAIN, torch.where(certainly_one, CERTAIN, base.logits))
        return logits.expand(shape)
    states = base._categorical if isinstance(base, OneHotCategorical) else base
    impossible, _ = _at_the_ends(states)
    logits = torch.where(impossible, -CERTAIN, states.logits)
    return logits.expand(shape if states is not base else (*shape, -1))


def _at_the_ends(base: Bernoulli | Categorical) -> tuple[Tensor, Tensor]:
    """Where the parameter that was given means probability 0, and where 1; the other one is rounded and clamped."""
    given = base._param
    ends = (0, 1) if given is base.__dict__.get("probs") else (-torch.inf, torch.inf)
    return given <= ends[0], given >= ends[1]


def is_possible(logits: Tensor, z: Tensor, states_axis: bool) -> Tensor:
    """Whether each variable can have the value z."""
    if states_axis:
        return logits.gather(-1, z[..., None]).squeeze(-1) > -CERTAIN
    return (2 * z - 1) * logits > -CERTAIN


def has_states_axis(distribution: Any) -> bool:
    """Whether its logits have a last axis of states."""
    return not isinstance(innermost(distribution), Bernoulli)


def draw(distribution: Any, logits: Tensor, noise: Tensor) -> Tensor:
    """States of all variables from uniform noise, which may lack axes on the left."""
    if has_states_axis(distribution):
        return categorical.sample(logits, noise)
    return bernoulli.sample(logits, noise)


def as_value(distribution: Any, z: Tensor) -> Tensor:
    """States in the form that the site's value has."""
    base = innermost(distribution)
    return one_hot(z, base.event_shape[-1]).to(base.logits.dtype) if isinstance(base, OneHotCategorical) else z


def normal_within(distribution: Any) -> Normal | None:
    """The Normal that the distribution is, or is a transform of."""
    while isinstance(distribution, (*WRAPPERS, TransformedDistribution)):
        distribution = distribution.base_dist
    return distribution if isinstance(distribution, Normal) else None


def from_normal(distribution: Any, standard: Tensor) -> Tensor:
    """The value that standard normal numbers give where normal_within is not None; they may lack axes on the left."""
    if isinstance(distribution, WRAPPERS):
        return from_normal(distribution.base_dist, standard).expand(distribution.batch_shape + distribution.event_shape)
    if isinstance(distribution, Normal):
        return distribution.loc + distribution.scale * standard
    value = from_normal(distribution.base_dist, standard)
    for transform in distribution.transforms:
        value = transform(value)
    return value
