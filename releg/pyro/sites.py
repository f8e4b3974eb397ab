"""The distributions of a guide's sites: which are discrete, their logits, and values made from given noise."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributions as dist
from pyro.distributions.torch_distribution import ExpandedDistribution, MaskedDistribution
from torch import Tensor
from torch.nn.functional import one_hot

from releg import bernoulli, categorical

WRAPPERS = (dist.Independent, MaskedDistribution, ExpandedDistribution)  # they change shapes and densities, not values
DISCRETE = (dist.Bernoulli, dist.Categorical, dist.OneHotCategorical)
CERTAIN = 1e4  # the logit of a Bernoulli variable that is always 1


def innermost(distribution: Any) -> Any:
    """The distribution without to_event, mask and expand."""
    while isinstance(distribution, WRAPPERS):
        distribution = distribution.base_dist
    return distribution


def is_discrete(distribution: Any) -> bool:
    """Whether it is one of those whose gradient is estimated from flips; relaxed ones count as continuous."""
    return isinstance(innermost(distribution), DISCRETE) and not distribution.has_rsample


def logits_of(distribution: Any) -> Tensor:
    """The logits of all variables, (batch, event), in the graph of the parameters; categorical ones have states last.

    Where a state cannot occur they are constants, +-CERTAIN or -inf.
    """
    base, shape = innermost(distribution), distribution.batch_shape + distribution.event_shape
    if isinstance(base, dist.Bernoulli):
        never, always = _at_the_ends(base)
        return torch.where(never, -CERTAIN, torch.where(always, CERTAIN, base.logits)).expand(shape)
    if isinstance(base, dist.Categorical):
        shape = (*shape, -1)
    else:
        base = base._categorical
    return torch.where(_at_the_ends(base)[0], -torch.inf, base.logits).expand(shape)


def _at_the_ends(base: Any) -> tuple[Tensor, Tensor]:
    """Where the parameter that was given means probability 0, and where 1; the other one is rounded or clamped."""
    given = base._param
    low, high = (0, 1) if given is base.__dict__.get("probs") else (-torch.inf, torch.inf)
    return given <= low, given >= high


def is_possible(logits: Tensor, z: Tensor) -> Tensor:
    """Whether each variable can have the value z."""
    if logits.dim() > z.dim():
        return logits.gather(-1, z[..., None]).squeeze(-1) > -torch.inf
    return (2 * z - 1) * logits > -CERTAIN


def has_states_axis(distribution: Any) -> bool:
    """Whether its logits have a last axis of states."""
    return not isinstance(innermost(distribution), dist.Bernoulli)


def draw(distribution: Any, logits: Tensor, noise: Tensor) -> Tensor:
    """States of all variables from uniform noise, which may lack axes on the left."""
    return (categorical if has_states_axis(distribution) else bernoulli).sample(logits, noise)


def as_value(distribution: Any, z: Tensor) -> Tensor:
    """States in the form that the site's value has."""
    base = innermost(distribution)
    return one_hot(z, base.event_shape[-1]).to(base.logits.dtype) if isinstance(base, dist.OneHotCategorical) else z


def normal_within(distribution: Any) -> dist.Normal | None:
    """The Normal that the distribution is, or is a transform of."""
    while isinstance(distribution, (*WRAPPERS, dist.TransformedDistribution)):
        distribution = distribution.base_dist
    return distribution if isinstance(distribution, dist.Normal) else None


def from_normal(distribution: Any, standard: Tensor) -> Tensor:
    """The value that standard normal numbers give where normal_within is not None; they may lack axes on the left."""
    if isinstance(distribution, WRAPPERS):
        return from_normal(distribution.base_dist, standard).expand(distribution.batch_shape + distribution.event_shape)
    if isinstance(distribution, dist.Normal):
        return distribution.loc + distribution.scale * standard
    value = from_normal(distribution.base_dist, standard)
    for transform in distribution.transforms:
        value = transform(value)
    return value
