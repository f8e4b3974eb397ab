"""The floor has the products of a step and no others."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from lightning_modules.bench.floor import Floor, floor_of, make_floors
from lightning_modules.bench.table import limited_threads
from lightning_modules.sbn_module import SBNModule
from releg.baselines import InputDependent, RunningAverage
from releg.estimators.likelihood_ratio import LikelihoodRatio


@pytest.mark.parametrize("layers", [(20,), (20, 30), (25, 12, 6, 3)])
def test_it_multiplies_as_often_as_a_step_of_lr_but_for_the_baselines_single_outputs(layers: tuple[int, ...]) -> None:
    module = SBNModule(list(layers), LikelihoodRatio([InputDependent(100), RunningAverage()]), 40)
    x = torch.rand(10, 40).round()
    noise = module.estimator.draw_noise(module.model, x)
    with FlopCounterMode(display=False) as step:
        module.loss_of(x, noise)[0].backward()
    with FlopCounterMode(display=False) as floor:
        Floor(40, layers, 10, baselines=True)(x)
    outputs = len(layers) * 2 * 10 * 100 * 3  # c = w2 hidden + b2: forward, and backward by w2 and by hidden
    assert step.get_total_flops() == floor.get_total_flops() + outputs


def test_without_baselines_their_products_are_missing() -> None:
    counts = []
    for baselines in (True, False):
        with FlopCounterMode(display=False) as counter:
            Floor(40, (20, 30), 10, baselines)(torch.zeros(10, 40))
        counts.append(counter.get_total_flops())
    assert counts[0] - counts[1] == 2 * 2 * 10 * 100 * (40 + 20)


def test_estimators_share_their_floors() -> None:
    floors = make_floors(40, (20,), 10, ["lr", "crn_cpu", "crn_dense", "pyro_lr"])
    assert sorted(floors) == ["floor_crn", "floor_lr"]
    assert floor_of("pyro_lr") == "floor_lr"


def test_threads_are_limited_for_a_while() -> None:
    before = torch.get_num_threads()
    with limited_threads(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before
