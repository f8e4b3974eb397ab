"""Units in use, in a net whose units are switched off by hand."""

import torch

from releg.measure.units_in_use import units_in_use
from releg.sbn import SigmoidBeliefNet


def test_units_that_are_always_off_or_on_are_not_in_use() -> None:
    generator = torch.Generator().manual_seed(0)
    model = SigmoidBeliefNet(20, [8, 6])
    with torch.no_grad():
        for layer in model.inference:
            layer.weight.normal_(generator=generator)
            layer.bias.zero_()
    x = torch.randint(2, (200, 20), generator=generator).float()
    assert units_in_use(model, x, generator) == [8, 6]
    with torch.no_grad():
        model.inference[0].bias[:3] = -50.0
        model.inference[0].bias[3] = 50.0
        model.inference[1].weight[2] = 0.0
    assert units_in_use(model, x, generator) == [4, 5]
