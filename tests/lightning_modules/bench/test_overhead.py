"""Arithmetic of the Trainer's overhead: times are compared as multiples of the floor timed next to them."""

import pytest
import torch

from lightning_modules.bench import stopwatch
from lightning_modules.bench.floor import Floor
from lightning_modules.bench.overhead import in_rounds_with_lr, overhead_columns
from lightning_modules.bench.rounds import Rounds, Turn, summary
from lightning_modules.bench.stopwatch import BLOCK, WARM_UP, Stopwatch


def rounds(name: str, *times: tuple[float, float]) -> Rounds:
    """One round for each pair: seconds of a step, seconds of LR's floor; CRN's floor is half of that."""
    return [
        {name: Turn(step, {}), "floor_lr": Turn(floor, {}), "floor_crn": Turn(floor / 2, {})} for step, floor in times
    ]


def test_loss_by_the_trainer_is_taken_in_floors_within_repetitions() -> None:
    """In the second repetition the machine became slow between the bare loop and the Trainer."""
    bare = [rounds("lr", (0.009, 0.005)), rounds("lr", (0.009, 0.005)), rounds("lr", (0.008, 0.005))]
    trainer = [rounds("lr", (0.010, 0.005)), rounds("lr", (0.100, 0.050)), rounds("lr", (0.010, 0.005))]
    columns = overhead_columns("lr", bare, trainer)
    assert columns["lost"] == pytest.approx(0.1)
    assert columns["bare_steps_per_second"] == pytest.approx(1 / 0.009, abs=0.01)
    assert columns["repetitions"] == 3


def test_ratio_to_lr_uses_the_time_that_lr_would_take_in_that_round() -> None:
    """LR takes 2 floors. CRN takes 3 of LR's floors, whatever the machine's speed was."""
    measured = {"lr": rounds("lr", (0.010, 0.005), (0.010, 0.005)), "crn_cpu": rounds("crn_cpu", (0.03, 0.01))}
    columns = summary(in_rounds_with_lr(measured, "crn_cpu"), "crn_cpu")
    assert columns["ratio_to_lr"] == 1.5
    assert columns["ratio_to_floor"] == 6.0
    assert summary(in_rounds_with_lr(measured, "lr"), "lr")["ratio_to_lr"] == 1.0


def test_stopwatch_times_blocks_and_leaves_out_the_step_after_a_turn_of_the_floors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [0.0]
    monkeypatch.setattr(stopwatch, "now", lambda device: clock[0])
    watch = Stopwatch("lr", {"floor_lr": Floor(4, (3,), 2, True)}, [torch.ones(2, 4)], 2 * BLOCK + 1)
    untimed = {*range(1, WARM_UP + 1), WARM_UP + BLOCK + 1}
    for step in range(1, watch.last + 1):
        clock[0] += 100.0 if step in untimed else 1.0
        watch.tick(step)
    assert [each["lr"].seconds for each in watch.rounds] == [1.0, 1.0]
    assert all(each["floor_lr"].seconds > 0 for each in watch.rounds)


def test_few_steps_make_one_short_block() -> None:
    watch = Stopwatch("lr", {}, [torch.ones(2, 4)], 5)
    for step in range(1, watch.last + 1):
        watch.tick(step)
    assert len(watch.rounds) == 1


def test_steps_under_the_stopwatch_do_not_move_the_weights() -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.RMSprop([weight], lr=0.1)
    Stopwatch.freeze([optimizer])
    weight.sum().backward()
    optimizer.step()
    assert weight.equal(torch.ones(3))
