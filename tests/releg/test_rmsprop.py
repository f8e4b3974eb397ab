"""RMSprop in one pass is torch's RMSprop."""

import copy
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from releg import rmsprop
from releg.rmsprop import RMSprop

SHAPES = [(30, 100), (7,), (), (1, 5000), (50, 17)]
SETTINGS: dict[str, Any] = {"lr": 0.003, "alpha": 0.99, "eps": 1e-8}


def parameters(dtype: torch.dtype = torch.float32) -> list[torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    return [torch.nn.Parameter(torch.randn(shape, generator=generator, dtype=dtype) / 10) for shape in SHAPES]


def groups(values: list[torch.nn.Parameter]) -> list[dict[str, Any]]:
    return [{"params": values[::2], "weight_decay": 0.001}, {"params": values[1::2], "weight_decay": 0.0}]


@cache
def gradients(step: int) -> list[Tensor]:
    """From small to huge, some of them zero."""
    generator = torch.Generator().manual_seed(1000 + step)
    draws = [torch.randn(shape, generator=generator) for shape in SHAPES]
    return [draw.pow(5) * 10.0 ** (step % 7 - 3) * (draw.abs() > 0.1) for draw in draws]


def train(optimizer: torch.optim.Optimizer, values: list[torch.nn.Parameter], steps: int, start: int = 0) -> None:
    for step in range(start, start + steps):
        for parameter, gradient in zip(values, gradients(step % 61), strict=True):
            parameter.grad = gradient.to(parameter.dtype)
        optimizer.step()


def units_in_the_last_place(a: Tensor, b: Tensor) -> int:
    return int((a.detach().view(torch.int32).long() - b.detach().view(torch.int32).long()).abs().max())


def test_a_thousand_steps_end_within_two_units_in_the_last_place_of_torch() -> None:
    ours, theirs = parameters(), parameters()
    train(one := RMSprop(groups(ours), **SETTINGS), ours, 1000)
    train(other := torch.optim.RMSprop(groups(theirs), **SETTINGS), theirs, 1000)
    for a, b in zip(ours, theirs, strict=True):
        assert units_in_the_last_place(a, b) <= 2
        assert units_in_the_last_place(one.state[a]["square_avg"], other.state[b]["square_avg"]) <= 2
        assert one.state[a]["step"] == other.state[b]["step"] == 1000


def test_the_number_of_threads_changes_nothing() -> None:
    alone, together = parameters(), parameters()
    train(RMSprop(groups(alone), **SETTINGS), alone, 5)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        train(RMSprop(groups(together), **SETTINGS), together, 5)
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(alone, together, strict=True))


@pytest.mark.parametrize("first", [RMSprop, torch.optim.RMSprop])
def test_a_checkpoint_of_one_continues_with_the_other(first: type[torch.optim.RMSprop]) -> None:
    second = torch.optim.RMSprop if first is RMSprop else RMSprop
    straight, changed = parameters(), parameters()
    train(torch.optim.RMSprop(groups(straight), **SETTINGS), straight, 40)
    train(begun := first(groups(changed), **SETTINGS), changed, 20)
    saved = copy.deepcopy(begun.state_dict())
    continued = second(groups(changed), lr=1.0)
    continued.load_state_dict(saved)
    train(continued, changed, 20, start=20)
    assert all(units_in_the_last_place(a, b) <= 2 for a, b in zip(straight, changed, strict=True))


def test_both_save_the_same_entries() -> None:
    saved = []
    for kind in (RMSprop, torch.optim.RMSprop):
        values = parameters()
        train(optimizer := kind(groups(values), **SETTINGS), values, 1)
        saved.append(optimizer.state_dict())
    assert saved[0]["param_groups"] == saved[1]["param_groups"]
    for mine, theirs in zip(saved[0]["state"].values(), saved[1]["state"].values(), strict=True):
        assert {name: (v.shape, v.dtype) for name, v in mine.items()} == {
            name: (v.shape, v.dtype) for name, v in theirs.items()
        }


@pytest.mark.parametrize(
    "settings",
    [{"momentum": 0.9}, {"centered": True}, {"maximize": True}, {"foreach": True}, {"lr": torch.tensor(0.01)}],
)
def test_settings_that_one_pass_does_not_know_are_left_to_torch(settings: dict[str, Any]) -> None:
    ours, theirs = parameters(), parameters()
    train(RMSprop(groups(ours), **(SETTINGS | settings)), ours, 3)
    train(torch.optim.RMSprop(groups(theirs), **(SETTINGS | settings)), theirs, 3)
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_float64_strided_parameters_and_no_numba_are_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    def one_pass(rows: object) -> None:
        raise AssertionError("torch's own step was expected")

    monkeypatch.setattr(rmsprop, "_update", one_pass)
    strided = [torch.nn.Parameter(torch.randn(4, 6).T)]
    strided[0].grad = torch.randn(6, 4)
    RMSprop(strided).step()
    wide = parameters(torch.float64)
    train(RMSprop(groups(wide)), wide, 1)
    monkeypatch.setattr(rmsprop, "has_numba", lambda: False)
    plain = parameters()
    train(RMSprop(groups(plain)), plain, 1)


def test_a_parameter_without_gradient_stays_and_hooks_run_once() -> None:
    values = parameters()
    before = values[0].detach().clone()
    optimizer = RMSprop(groups(values), momentum=0.5)
    calls: list[int] = []
    optimizer.register_step_post_hook(lambda *_: calls.append(1))
    values[1].grad = torch.ones_like(values[1])
    optimizer.step()
    RMSprop(groups(values)).step()
    assert torch.equal(values[0], before)
    assert calls == [1]


def test_the_closure_is_called_with_gradients_enabled() -> None:
    value = torch.nn.Parameter(torch.ones(3))

    def closure() -> Tensor:
        loss = value.square().sum()
        loss.backward()
        return loss

    assert RMSprop([value], lr=0.01).step(closure).item() == 3
    assert (value < 1).all()


def test_autograd_notices_that_a_parameter_changed() -> None:
    value = torch.nn.Parameter(torch.ones(3))
    loss = value.square().sum()
    value.grad = torch.ones(3)
    RMSprop([value]).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
