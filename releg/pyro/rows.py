"""Rows: the plates within which a change of any discrete site stays, and f = log p - log q row by row."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import dropwhile
from math import prod
from typing import Any

import torch
from torch import Tensor

Trace = Any  # pyro.poutine.Trace


@dataclass(frozen=True)
class Rows:
    """The rows of a program: all combinations of the plates that hold every site which a discrete site can affect.

    Without such plates there is one row.
    """

    names: frozenset[str]  # of discrete sites of the guide
    axes: tuple[int, ...]  # of the plates, on the batch axes, counted from the right
    sizes: tuple[int, ...]

    def __len__(self) -> int:
        return prod(self.sizes)

    def values(self, model: Trace, guide: Trace, axis: int | None = None) -> Tensor:
        """The sum of all terms that a discrete site can affect, (N,), or (flips, N) if flips lie on an axis."""
        of_model, of_guide = affected(model, guide, self.names)
        log_p, log_q = ([self._by_row(site, axis) for site in sites] for sites in (of_model, of_guide))
        return torch.stack([*log_p, *(-term for term in log_q)]).sum(0)

    def _by_row(self, site: Any, axis: int | None) -> Tensor:
        log_prob = site["log_prob"].detach()
        batch = log_prob.dim() if axis is None else -axis - 1
        by_axis = log_prob.reshape([1] * (batch - log_prob.dim()) + list(log_prob.shape))
        if any(-a > batch for a in self.axes) or tuple(by_axis.shape[a] for a in self.axes) != self.sizes:
            raise ValueError(
                f"site '{site['name']}' has log-probabilities of shape {tuple(log_prob.shape)}, expected rows of sizes "
                f"{self.sizes} on its axes {self.axes}; put it into the same plates as the discrete sites of the guide"
            )
        others = [a for a in range(-batch, 0) if a not in self.axes]
        summed = by_axis.sum(others) if others else by_axis
        return summed.flatten() if axis is None else summed.reshape(log_prob.shape[0], len(self))

    def flatten(self, values: Tensor, batch_axes: int, states: bool = False) -> Tensor:
        """Values or logits of a discrete site, (batch, event), with rows first: (N, units) or (N, units, states)."""
        moved = values.movedim([batch_axes + a for a in self.axes], list(range(len(self.axes))))
        return moved.reshape(len(self), -1, *([values.shape[-1]] if states else []))

    def unflatten(self, z: Tensor, shape: torch.Size, batch_axes: int) -> Tensor:
        """The inverse of flatten for values."""
        at = [batch_axes + a for a in self.axes]
        others = [size for a, size in enumerate(shape) if a not in at]
        return z.reshape([*self.sizes, *others]).movedim(list(range(len(at))), at)


def samples(trace: Trace) -> list[Any]:
    """The sample sites."""
    return [site for site in trace.nodes.values() if site["type"] == "sample"]


def affected(model: Trace, guide: Trace, names: frozenset[str]) -> tuple[list[Any], list[Any]]:
    """The sites of the model and of the guide that can depend on those of the guide with these names."""
    of_guide = from_first(samples(guide), names)
    return from_first(samples(model), frozenset(site["name"] for site in of_guide)), of_guide


def from_first(sites: list[Any], names: frozenset[str]) -> list[Any]:
    """What a program samples from the first of these names on: nothing before can depend on them."""
    return list(dropwhile(lambda site: site["name"] not in names, sites))


def find_rows(model: Trace, guide: Trace, names: frozenset[str]) -> Rows:
    """The rows of a recorded run whose guide has discrete sites with these names."""
    of_model, of_guide = affected(model, guide, names)
    stacks = [site["cond_indep_stack"] for site in (*of_model, *of_guide)]
    plates = [{(frame.name, frame.dim) for frame in stack if frame.vectorized} for stack in stacks]
    axes = tuple(sorted(axis for _, axis in set.intersection(*plates)))
    return Rows(names, axes, tuple(of_guide[0]["log_prob"].shape[axis] for axis in axes))
