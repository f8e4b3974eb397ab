"""Many flips of one layer at once: each sets one unit to another state and simulates the consequences.

A flip is a row, a unit and its new state. M flips are M rows of x and z, so that one call of `logits` or of f serves
them all. A descendant is simulated only in the rows where one of its parents changed; it keeps its value elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from releg.discrete.functions import LayerFunction, evaluate
from releg.discrete.layers import Continuous, Layer, Values
from releg.discrete.model import DiscreteModel, Sample, floating_type


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
    z = {name: values.detach().index_select(0, flips.row) for name, values in sample.z.items()}
    states = layer.read(z[layer.name])
    states = states.scatter(1, flips.unit[:, None], flips.state[:, None].to(states.dtype))
    z[layer.name] = layer.show(states, floating_type(x))
    changed: dict[str, Tensor | None] = {layer.name: None}  # indices into the M rows; None: all of them
    for below in model.descendants[layer.name]:
        where = _any_parent_changed(below, changed, len(flips))
        changed[below.name] = _simulate_layer(model, below, rows_x, z, noise, flips.row, where)
    return rows_x, z


def _any_parent_changed(layer: Layer | Continuous, changed: Mapping[str, Tensor | None], rows: int) -> Tensor | None:
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
    layer: Layer | Continuous,
    x: Tensor,
    z: Values,
    noise: Mapping[str, Tensor],
    row: Tensor,
    where: Tensor | None,
) -> Tensor:
    """Replace the layer's values in z in the rows `where`; return those rows in which it changed."""
    old = z[layer.name]
    if where is not None:
        if len(where) == 0:
            return where
        parents = {name: z[name][where] for name in layer.parents}
        new = model.simulate_again(layer, x[where], parents, noise, row[where])
        changed = (new != old[where]).view(len(new), -1).any(1)
        old[where] = new
        return where[changed]
    z[layer.name] = model.simulate_again(layer, x, z, noise, row)
    return (z[layer.name] != old).view(len(old), -1).any(1).nonzero().squeeze(1)


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
        x, z = simulate(f_l.model, f_l.layer, f_l.sample, f_l.x, f_l.noise, flips)
        changes[flips.row, flips.unit, flips.state] = evaluate(f_l.f, x, z) - f_l.value[flips.row]
    return changes
