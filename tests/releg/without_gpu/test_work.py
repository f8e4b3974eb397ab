"""Instructions and bytes of a step, against counts one by one."""

import torch

from releg.without_gpu.instructions import Code
from releg.without_gpu.work import TILE, of_tiles, walked
from tests.releg.helpers import random_model


def test_tiles_are_counted_program_by_program() -> None:
    rows, units, targets = 6, 9, 130
    instructions = loaded = 0
    for row in range(0, rows, TILE.rows):
        for unit in range(0, units, TILE.units):
            instructions += TILE.warps * 10
            for start in range(0, targets, TILE.targets):
                here = min(TILE.targets, targets - start)
                instructions += TILE.warps * 7
                loaded += 4 * here * (3 * min(TILE.rows, rows - row) + 2 * min(TILE.units, units - unit))
    work = of_tiles(Code(10, (7,)), rows, units, targets, of_rows=3, of_units=2, tiles=1)
    assert work.instructions == instructions
    assert work.loaded == loaded + 4 * rows * units
    assert work.arrays == 4 * (3 * rows * targets + 2 * units * targets + rows * units)


def test_what_the_walk_does_is_counted_flip_by_flip() -> None:
    """Every flip is simulated by itself: changed units of each deeper layer, unless the first has none or one."""
    model, rows = random_model(12, [7, 6, 5], 1.0, 1), 3
    generator = torch.Generator().manual_seed(0)
    x = (torch.rand(rows, 12, generator=generator) < 0.13).double()
    path = model.infer(x, model.draw_noise(x, generator))
    flips = layers = units = 0
    for unit in range(7):
        z = path.z[0].clone()
        z[:, unit] = 1 - z[:, unit]
        changes = []
        for deeper in (1, 2):
            z = (path.noise[deeper] < torch.sigmoid(model.inference_logits(deeper, z))).double()
            changes.append((z != path.z[deeper]).sum(-1))
        several = changes[0] > 1
        flips += int(several.sum())
        layers += sum(int((several & (count > 0)).sum()) for count in changes)
        units += sum(int(count[several].sum()) for count in changes)
    work = walked(model, 0, rows)
    assert flips > 0
    assert (work.flips, work.layers, work.units) == (flips, layers, units)
