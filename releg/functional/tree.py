"""A categorical variable as a balanced tree of Bernoulli variables, and a second sample antithetic to the first.

Level by level a node sends z into the lower or the upper half of its states: `goes_up`, with the logit of the upper
half's probability against the lower's. Two samples descend together, antithetic at every node (of two Bernoulli
variables with mean p, both are 1 with probability max(2 p - 1, 0)), until they part; then each goes on by itself.

DisARM on these Bernoulli variables, averaged over those that neither sample meets (Dong, Mnih & Tucker 2021):
a node where both are gets (f - f') / 2 (b - b') sigmoid(|logit|), one where z alone is (f - f') / 2 (b - p), and one
where the other alone is (f' - f) / 2 (b' - p).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from releg import bernoulli


@dataclass(frozen=True)
class Level:
    """The nodes at one depth of the tree; a node is a block of 2 * half neighbouring states, a power of two."""

    half: int
    log_mass: Tensor  # (N, units, 2 * nodes), log-probability of the lower and the upper half of every node

    def node(self, states: Tensor) -> Tensor:
        """The number of the node that a state belongs to."""
        return states // (2 * self.half)

    def goes_up(self, states: Tensor) -> Tensor:
        """1 for a state in the upper half of its node, else 0, in the type of the logits."""
        return (states // self.half % 2).to(self.log_mass.dtype)

    def logit(self, states: Tensor) -> Tensor:
        """Of the upper half's probability at the node of these states (N, units); ±inf where the node has one half."""
        node = self.node(states)[..., None]
        return (self.log_mass.gather(-1, 2 * node + 1) - self.log_mass.gather(-1, 2 * node)).squeeze(-1)


def levels(logits: Tensor) -> Iterator[Level]:
    """From the root down, for logits (N, units, states); states with probability zero make them a power of two."""
    size = 1 << (logits.shape[-1] - 1).bit_length()
    log_q = torch.nn.functional.pad(logits.log_softmax(-1), (0, size - logits.shape[-1]), value=-torch.inf)
    half = size // 2
    while half:
        yield Level(half, log_q.unflatten(-1, (-1, half)).logsumexp(-1))
        half //= 2


def opposite_of(logits: Tensor, z: Tensor, noise: Tensor) -> Tensor:
    """The second sample (N, units) given the first, by one uniform number for each variable.

    The number decides at the first node, and what is left of it, scaled to [0, 1), at the next.
    """
    other = torch.zeros_like(z)
    together = torch.ones_like(z, dtype=torch.bool)
    for level in levels(logits):
        logit, up = level.logit(other), level.goes_up(z)
        mean = torch.sigmoid(logit)
        # both up: max(2 - 1 / mean, 0) given that z goes up; z down and the other up: min(mean, 1 - mean) / (1 - mean)
        given_z = torch.where(up == 1, (2 - 1 / mean).clamp(min=0), torch.exp(logit.clamp(max=0)))
        threshold = torch.where(together, given_z, mean)
        goes_up = noise < threshold
        noise = torch.where(goes_up, noise / threshold, (noise - threshold) / (1 - threshold))
        noise = noise.clamp(max=1 - torch.finfo(noise.dtype).eps)
        other = other + level.half * goes_up
        together = together & (up == goes_up)
    return other


def antithetic_gradient(change: Tensor, z: Tensor, opposite: Tensor, logits: Tensor) -> Tensor:
    """DisARM's estimate by the logits, (N, units, states).

    Args:
        change: (N,) f(z) - f(opposite).
        z: (N, units) long.
        opposite: (N, units) long, from `opposite_of`.
        logits: (N, units, states).
    """
    total, log_q = torch.zeros_like(logits), logits.log_softmax(-1)
    for level in levels(logits):
        logit, up, other_up = level.logit(z), level.goes_up(z), level.goes_up(opposite)
        together = level.node(z) == level.node(opposite)
        both = (up - other_up) * torch.sigmoid(logit.abs())
        total += _by_logits(level, log_q, z, torch.where(together, both, bernoulli.score(logit, up)))
        alone = torch.where(together, 0, bernoulli.score(level.logit(opposite), other_up))
        total -= _by_logits(level, log_q, opposite, alone)
    return change[:, None, None] / 2 * total


def _by_logits(level: Level, log_q: Tensor, z: Tensor, weight: Tensor) -> Tensor:
    """weight (N, units) times the derivative of the logit at z's node: ± the probability of a state within its half."""
    states = torch.arange(log_q.shape[-1], device=log_q.device)
    within = (log_q - level.log_mass[..., states // level.half]).exp()
    within = torch.where(log_q > -torch.inf, within, 0)
    at_node = level.node(z)[..., None] == level.node(states)
    return weight[..., None] * at_node * (2 * level.goes_up(states) - 1) * within
