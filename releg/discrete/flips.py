"""Many flips of one layer at once: each sets one unit to another state and simulates the consequences.

A flip is a row, a unit and its new state. M flips are M rows of x and z, so that one call of `logits` or of f serves
them all. A descendant is simulated only in the rows where one of its parents changed; it keeps its value elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from releg.discrete.layers import Layer, Values
from releg.discrete.model import DiscreteModel, Sample


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


def flips_of(layer: Layer, z: Tensor, chosen: Tensor | None, size: int) -> Iterator[Flips]:
    """Every unit of z (N, units) to each of its other states, or only those that are chosen, `size` or fewer at a time.

    Flips are listed for a few rows at a time, so that the lists take no more memory than the flips themselves.

    Args:
        layer: the layer to flip.
        z: its values in the sample.
        chosen: (N, units, states) mask of the wanted flips; those that change nothing are left out.
        size: the largest number of flips.
    """
    per_row = layer.units * (layer.states - 1)
    if chosen is not None:
        per_row = max(1, min(per_row, int(chosen.flatten(1).sum(1).max())))
    blocks = -(-len(z) // max(1, size // per_row))
    rows = -(-len(z) // blocks)
    states = torch.arange(layer.states, device=z.device)
    for start in range(0, len(z), rows):
        block = slice(start, start + rows)
        wanted = z[block, :, None] != states
        row, unit, state = (wanted if chosen is None else wanted & chosen[block]).nonzero().unbind(1)
        yield from Flips(row + start, unit, state).parts(size)


@torch.no_grad()
def simulate(
    model: DiscreteModel, layer: Layer, sample: Sample, x: Tensor, noise: Mapping[str, Tensor], flips: Flips
) -> tuple[Tensor, Values]:
    """x and z of M flips, as the user sees them: the flipped layer, its descendants simulated anew, the rest as it was.

    Args:
        model: q(z | x).
        layer: whose units are flipped.
        sample: of N rows.
        x: (N, ...) of the sample.
        noise: of the sample.
        flips: M of them.
    """
    rows_x = x.index_select(0, flips.row)
    z = {name: values.index_select(0, flips.row) for name, values in sample.z.items()}
    layer.widen(z[layer.name]).scatter_(1, flips.unit[:, None], flips.state[:, None].to(z[layer.name].dtype))
    changed: dict[str, Tensor | None] = {layer.name: None}  # indices into the M rows; None: all of them
    for below in model.descendants[layer.name]:
        where = _any_parent_changed(below, changed, len(flips))
        changed[below.name] = _simulate_layer(model, below, rows_x, z, noise, flips.row, where)
    return rows_x, z


def _any_parent_changed(layer: Layer, changed: Mapping[str, Tensor | None], rows: int) -> Tensor | None:
    """The rows in which a parent of the layer changed; None: all."""
    indices = [changed[name] for name in layer.parents if name in changed]
    found = [index for index in indices if index is not None]
    if len(found) < len(indices):
        return None
    if len(found) == 1:
        return found[0]
    mask = torch.zeros(rows, dtype=torch.bool, device=found[0].device)
    for index in found:
        mask[index] = True
    return mask.nonzero().squeeze(1)


def _simulate_layer(
    model: DiscreteModel,
    layer: Layer,
    x: Tensor,
    z: Values,
    noise: Mapping[str, Tensor],
    row: Tensor,
    where: Tensor | None,
) -> Tensor:
    """Replace the layer's values in z in the rows `where`; return those rows in which it changed."""
    if where is not None:
        if len(where) == 0:
            return where
        parents = {name: z[name][where] for name in layer.parents}
        new = model.simulate_again(layer, x[where], parents, noise, row[where])
        old = layer.widen(z[layer.name])[where]
        layer.widen(z[layer.name])[where] = new
        return where[(new != old).any(1)]
    new = model.simulate_again(layer, x, z, noise, row)
    old, z[layer.name] = layer.widen(z[layer.name]), layer.narrow(new)
    return (new != old).any(1).nonzero().squeeze(1)
