"""What the kernels of the triton engine have to do in a step: instructions, and numbers read and written.

The work of the tile kernels does not depend on the numbers. The work of the walk depends on which units change, so
a simulation at initial weights counts it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
import triton
from torch import Tensor

from releg.kernels.batched import margin_of
from releg.kernels.triton.ops import GPU_TILES
from releg.sbn import SigmoidBeliefNet
from releg.without_gpu.instructions import Code

TILE = GPU_TILES[torch.float32]
BYTES = 4  # of a number
SIMULATED_ROWS = 10


@dataclass(frozen=True)
class Work:
    """Of one kernel, or of several together."""

    instructions: float = 0.0  # of warps
    loaded: float = 0.0  # bytes that its programs ask for; caches answer most of it
    arrays: float = 0.0  # bytes of the arrays that it reads and writes, each counted once

    def __add__(self, other: Work) -> Work:
        return Work(self.instructions + other.instructions, self.loaded + other.loaded, self.arrays + other.arrays)


@dataclass(frozen=True)
class Walked:
    """What the walk has to do: flips listed, layers that these go through, changed units, and numbers read."""

    flips: float
    layers: float
    units: float
    numbers: float


def work_of_a_step(code: Mapping[str, Code], data_size: int, layers: Sequence[int], rows: int) -> dict[str, Work]:
    """By kernel: products, changes and walk of all layers together."""
    torch.manual_seed(0)
    model = SigmoidBeliefNet(data_size, layers)
    widths = [data_size, *layers]
    total = {"products": Work(), "changes": Work(), "walk": Work()}
    for layer, units in enumerate(layers):
        total["products"] += of_tiles(code["products"], rows, units, widths[layer], of_rows=2, of_units=2, tiles=2)
        if layer + 1 < len(layers):
            total["changes"] += of_tiles(code["changes"], rows, units, layers[layer + 1], 5, 4, 2)
            total["walk"] += of_walk(code["walk"], model, layer, rows)
    return total


def of_tiles(code: Code, rows: int, units: int, targets: int, of_rows: int, of_units: int, tiles: int) -> Work:
    """Of a kernel that walks over the targets of tiles of rows x units.

    Args:
        code: its instructions.
        rows: of the batch.
        units: of the layer.
        targets: of the layer that the units act on.
        of_rows: how many arrays (rows, targets) it reads.
        of_units: how many arrays (units, targets) it reads.
        tiles: how many arrays (rows, units) it reads or writes.
    """
    down, across = TILE.grid(rows, units)
    instructions = down * across * TILE.warps * (code.outside + triton.cdiv(targets, TILE.targets) * code.rounds[0])
    block = across * rows * of_rows + down * units * of_units  # rows are read once per column of tiles, and so on
    arrays = (rows * of_rows + units * of_units) * targets + rows * units * tiles
    return Work(instructions, BYTES * (block * targets + rows * units * tiles), BYTES * arrays)


def of_walk(code: Code, model: SigmoidBeliefNet, layer: int, rows: int) -> Work:
    """Of the walk from one layer down."""
    work = walked(model, layer, SIMULATED_ROWS)
    share, widths = rows / SIMULATED_ROWS, model.layers[layer:]
    per_flip, per_layer, per_unit = code.rounds
    instructions = work.flips * per_flip + work.layers * per_layer + work.units * per_unit
    matrices = 2 * sum(above * below for above, below in pairwise(widths))
    arrays = 6 * rows * sum(widths) + matrices + 2 * share * work.flips
    return Work(share * instructions, BYTES * share * work.numbers, BYTES * arrays)


@torch.no_grad()
def walked(model: SigmoidBeliefNet, layer: int, rows: int) -> Walked:
    """Counted for some rows by simulation, at the model's weights, with random data."""
    generator = torch.Generator().manual_seed(0)
    x = (torch.rand(rows, model.data_size, generator=generator) < 0.13).to(model.mean.dtype)
    path = model.infer(x, model.draw_noise(x, generator))
    step: Tensor = torch.diag_embed(1 - 2 * path.z[layer])  # (rows, units, H)
    sizes = [*model.layers, 0]
    flips = layers = units = numbers = 0
    for deeper in range(layer + 1, len(model.layers)):
        sign = 1 - 2 * path.z[deeper]
        margin = margin_of(path.noise[deeper], path.logits[deeper], sign)
        moved = step @ model.inference[deeper].weight.T
        step = (sign[:, None] * moved > margin[:, None]) * sign[:, None]
        changes = step.abs().sum(-1)
        if deeper == layer + 1:
            step[changes < 2] = 0  # done without the walk
            flips = int((changes > 1).sum())
            numbers = 4 * sizes[deeper] * flips
        here, changed = int(step.any(-1).sum()), int(step.abs().sum())
        layers, units = layers + here, units + changed
        numbers += here * (3 * sizes[deeper - 1] + sizes[deeper] + 4 * sizes[deeper + 1])
        numbers += changed * (1 + sizes[deeper - 1] + sizes[deeper + 1])
    return Walked(flips, layers, units, numbers)
