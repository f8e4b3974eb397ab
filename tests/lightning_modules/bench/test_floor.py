"""The floor has the products of a step and no others."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from lightning_modules.bench.floor import Floor
from lightning_modules.sbn_module import SBNModule
from releg.baselines import InputDependent, RunningAverage
from releg.estimators.likelihood_ratio import LikelihoodRatio


def flops(layers: tuple[int, ...], baselines: bool) -> int:
    with FlopCounterMode(display=False) as counter:
        assert Floor(40, layers, 10, baselines).take(1) == 1
    return int(counter.get_total_flops())


@pytest.mark.parametrize("layers", [(20,), (20, 30), (25, 12, 6, 3)])
def test_it_multiplies_as_often_as_a_step_of_lr_but_for_the_baselines_single_outputs(layers: tuple[int, ...]) -> None:
    module = SBNModule(list(layers), LikelihoodRatio([InputDependent(100), RunningAverage()]), 40)
    x = torch.rand(10, 40).round()
    noise = module.estimator.draw_noise(module.model, x)
    with FlopCounterMode(display=False) as step:
        module.loss_of(x, noise)[0].backward()
    outputs = len(layers) * 2 * 10 * 100 * 3  # c = w2 hidden + b2: forward, and backward by w2 and by hidden
    assert step.get_total_flops() == flops(layers, True) + outputs


def test_without_baselines_their_products_are_missing() -> None:
    assert flops((20, 30), True) - flops((20, 30), False) == 2 * 2 * 10 * 100 * (40 + 20)
