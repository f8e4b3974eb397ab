"""Rows: the plates within which a change of any discrete site stays, and f = log p - log q row by row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
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

    def values(self, guide: Trace, model: Trace, axis: int | None = None) -> Tensor:
        """The sum of all terms that a discrete site can affect, (N,), or (flips, N) if flips lie on an axis."""
        terms = [(site, 1) for site in affected(model, self._later(guide))]
        terms += [(site, -1) for site in affected(guide, self.names)]
        return torch.stack([sign * self._by_row(site, axis) for site, sign in terms]).sum(0)

    def _later(self, guide: Trace) -> frozenset[str]:
        return frozenset(site["name"] for site in affected(guide, self.names))

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


def affected(trace: Trace, names: frozenset[str]) -> Iterator[Any]:
    """The sample sites from the first of these names on: what comes before cannot depend on them."""
    reached = False
    for name, site in trace.nodes.items():
        reached = reached or name in names
        if reached and site["type"] == "sample":
            yield site


def find_rows(guide: Trace, model: Trace, names: frozenset[str]) -> Rows:
    """The rows of a recorded run whose guide has discrete sites with these names."""
    of_guide = list(affected(guide, names))
    concerned = [*of_guide, *affected(model, frozenset(site["name"] for site in of_guide))]
    plates = [{(frame.name, frame.dim) for frame in site["cond_indep_stack"] if frame.vectorized} for site in concerned]
    axes = tuple(sorted(axis for _, axis in set.intersection(*plates)))
    return Rows(names, axes, tuple(of_guide[0]["log_prob"].shape[axis] for axis in axes))
