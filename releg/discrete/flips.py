"""Many flips of one layer at once: one unit of each is set to another state, and what follows is simulated.

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
    state: Tensor  # (M,) long, another than the sample's

    def __len__(self) -> int:
        return len(self.row)

    def batches(self, size: int) -> Iterator[Flips]:
        """As equal as they can be, with at most `size` flips each."""
        number = -(-len(self) // size)
        step = -(-len(self) // max(1, number))
        for start in range(0, len(self), max(1, step)):
            part = slice(start, start + step)
            yield Flips(self.row[part], self.unit[part], self.state[part])


def all_flips(layer: Layer, z: Tensor, chosen: Tensor | None = None) -> Flips:
    """Every unit of z (N, units) to each of its other states, or only those that are chosen.

    Args:
        layer: which.
        z: its values in the sample.
        chosen: (N, units, states) of which are wanted; those that are no change are left out.
    """
    own = torch.nn.functional.one_hot(z.long(), layer.states).bool()  # (N, units, states)
    wanted = ~own if chosen is None else chosen & ~own
    return Flips(*wanted.nonzero(as_tuple=True))


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
    rows_x = x[flips.row]
    z = {name: values[flips.row] for name, values in sample.z.items()}
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
    """Replace the layer's values in z in the rows `where`; the answer says in which of them it changed."""
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
