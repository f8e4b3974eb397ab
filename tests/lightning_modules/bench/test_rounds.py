"""The arithmetic of the benchmark, on numbers that are known."""

import random

import pytest
import pytorch_lightning as pl
import torch

from lightning_modules.bench import rounds, trainer
from lightning_modules.bench.rounds import milliseconds, play_round, ratio
from lightning_modules.bench.steps import Problem
from lightning_modules.bench.trainer import BLOCK, WARM_UP, RoundsInTrainer

CLOCK = [0.0]


class Runner:
    """Takes steps of a known duration on a clock of its own."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.taken, self.restored = seconds, 0, 0

    def restore(self) -> None:
        self.restored += 1

    def take(self, steps: int) -> int:
        CLOCK[0] += steps * self.seconds
        self.taken += steps
        return steps


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    for module in (rounds, trainer):
        monkeypatch.setattr(module, "now", lambda device: CLOCK[0])
    return CLOCK


@pytest.mark.usefixtures("clock")
def test_everything_takes_a_turn_from_its_weights_and_slow_steps_take_fewer() -> None:
    runners = {"fast": Runner(0.001), "slow": Runner(0.2), "slower": Runner(3.0)}
    times = play_round(runners, 20, random.Random(0), "cpu")
    assert times == pytest.approx({name: runner.seconds for name, runner in runners.items()})
    assert [runner.restored for runner in runners.values()] == [1, 1, 1]
    assert [runner.taken for runner in runners.values()] == [1 + 20, 1 + 2, 1 + 1]  # the first warms the caches


def test_ratios_are_taken_within_rounds_so_that_a_slow_minute_does_not_count() -> None:
    played = [{"lr": 0.01 * speed, "crn": 0.015 * speed} for speed in (1.0, 1.0, 10.0, 1.0, 7.0)]
    assert ratio(played, "crn", "lr") == [1.5, 1.5, 1.5]
    assert milliseconds(played, "crn") == [15.0, 15.0, 105.0]


def test_the_trainers_steps_are_timed_in_blocks_from_the_same_weights_and_the_others_after_each(
    clock: list[float],
) -> None:
    class Told:
        global_step = 0

    other, told, module = Runner(0.5), Told(), pl.LightningModule()
    module.model = torch.nn.Linear(1, 1)
    start = {name: torch.full_like(value, 0.5) for name, value in module.model.state_dict().items()}
    problem = Problem((1,), start, [])
    watch = RoundsInTrainer("lr", problem, {("lr", "eager"): other}, 5, 2)
    watch.on_train_start(told, module)  # type: ignore[arg-type]
    untimed = {*range(1, WARM_UP + 2), WARM_UP + BLOCK + 2}  # the first of a block only warms the caches
    for told.global_step in range(1, watch.last + 1):
        clock[0] += 100.0 if told.global_step in untimed else 1.0
        module.model.weight.data += 1
        watch.on_train_batch_end(told, module)  # type: ignore[arg-type]
    assert watch.rounds == [{("lr", "trainer"): 1.0, ("lr", "eager"): 0.5}] * 2
    assert module.model.weight.item() == 0.5
