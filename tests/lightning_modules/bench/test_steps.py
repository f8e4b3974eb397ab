"""What is timed is what it is called: real training steps."""

import pytest
import torch
from torch import Tensor

from lightning_modules.bench.steps import (
    CONFIGS,
    EAGER,
    FLOOR,
    JAX,
    SCANNED,
    OurSteps,
    Problem,
    contestants,
    has_jax,
    ways_here,
)
from lightning_modules.bench.tables import limited_threads
from tests.releg.helpers import random_model, random_x

DATA_SIZE = 20


@pytest.fixture
def problem() -> Problem:
    weights = random_model(DATA_SIZE, [4, 3], scale=0.1, dtype=torch.float32).state_dict()
    return Problem((4, 3), weights, [random_x(30, DATA_SIZE, seed, torch.float32) for seed in range(2)], seed=5)


def test_ours_jax_and_the_floor_are_timed_for_both_estimators(problem: Problem) -> None:
    names = [(name, way) for name in CONFIGS for way in (FLOOR, EAGER, *([JAX] if has_jax() else []))]
    assert {way for _, way in names} <= set(ways_here("cpu"))
    for (name, way), contestant in contestants(problem, names).items():
        contestant.restore()
        assert contestant.take(2) == (SCANNED[name] if way == JAX else 2)


@pytest.mark.parametrize("name", CONFIGS.values())
def test_our_steps_train_every_parameter_and_restore_takes_the_model_back(name: str, problem: Problem) -> None:
    steps = OurSteps(name, problem, compiled=False)
    module = steps.step.module
    before: dict[str, Tensor] = {key: value.clone() for key, value in module.named_parameters()}
    assert steps.take(3) == 3
    assert [key for key, value in module.named_parameters() if torch.equal(value, before[key])] == []
    steps.restore()
    assert all(torch.equal(value, problem.weights[key]) for key, value in module.model.state_dict().items())


def test_jax_is_not_compared_with_a_gpu() -> None:
    assert JAX not in ways_here("cuda")


def test_threads_are_limited_for_a_while() -> None:
    before = torch.get_num_threads()
    with limited_threads(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before
