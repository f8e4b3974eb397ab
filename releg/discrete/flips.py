"""Many flips of one layer at once: each sets one unit to another state and simulates the consequences.

A flip is a row, a unit and its new state. M flips are M rows of x and z, so that one call of `logits` or of f serves
them all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from releg.discrete.functions import LayerFunction, evaluate
from releg.discrete.layers import Values
from releg.discrete.model import floating_type


@dataclass(frozen=True)
class Flips:
    """M flips of units of one layer."""

    row: Tensor  # (M,) long, of the sample
    unit: Tensor  # (M,) long
    state: Tensor  # (M,) long, different from the sample's

    def __len__(self) -> int:
        return len(self.row)

    def parts(self, size: int) -> Iterator[Flips]:
        """Split into parts of nearly equal size, with at most `size` flips each."""
        if not len(self):
            return
        step = -(-len(self) // -(-len(self) // size))
        for start in range(0, len(self), step):
            part = slice(start, start + step)
            yield Flips(self.row[part], self.unit[part], self.state[part])


def flips_of(wanted: Tensor, size: int) -> Iterator[Flips]:
    """The flips in a mask (N, units, states), `size` or fewer at a time.

    Flips are listed for a few rows at a time, so that the lists take no more memory than the flips themselves.
    """
    per_row = max(1, int(wanted.flatten(1).sum(1).max()))
    blocks = -(-len(wanted) // max(1, size // per_row))
    rows = -(-len(wanted) // blocks)
    for start in range(0, len(wanted), rows):
        row, unit, state = wanted[start : start + rows].nonzero().unbind(1)
        yield from Flips(row + start, unit, state).parts(size)


@torch.no_grad()
def simulate(f_l: LayerFunction, flips: Flips) -> tuple[Tensor, Values]:
    """x and z of M flips: the flipped layer, its descendants simulated anew, the rest as it was."""
    model, layer, x = f_l.model, f_l.layer, f_l.x.index_select(0, flips.row)
    z = {name: values.detach().index_select(0, flips.row) for name, values in f_l.sample.z.items()}
    noise = {after.name: f_l.noise[after.name].index_select(0, flips.row) for after in model.descendants[layer.name]}
    states = layer.read(z[layer.name])
    states = states.scatter(1, flips.unit[:, None], flips.state[:, None].to(states.dtype))
    return x, model.with_layer(layer.name, layer.show(states, floating_type(x)), x, z, noise)


@torch.no_grad()
def flipped_changes(f_l: LayerFunction, wanted: Tensor, batch: int) -> Tensor:
    """f after each wanted flip minus f before, (N, units, states); zero for all others.

    Args:
        f_l: f as a function of the layer that is flipped.
        wanted: (N, units, states) mask of the flips to simulate.
        batch: the largest number of flips to simulate together.
    """
    changes = torch.zeros(wanted.shape, dtype=f_l.value.dtype, device=f_l.value.device)
    for flips in flips_of(wanted, batch):
        x, z = simulate(f_l, flips)
        changes[flips.row, flips.unit, flips.state] = evaluate(f_l.f, x, z) - f_l.value[flips.row]
    return changes
