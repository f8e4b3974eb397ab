"""A compiled step has the numbers of a plain one, for every shipped estimator, and is compiled once."""

import logging
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from lightning_modules import compiled_step
from lightning_modules.compiled_step import STEPS_WORTH_IT, compile_update, is_worth_compiling
from lightning_modules.sbn_module import SBNModule
from lightning_modules.shipped_estimators import read_estimator, shipped_names
from releg.estimators.base import Estimator
from releg.estimators.common_random_numbers import CommonRandomNumbers
from tests.releg.helpers import random_x

CPU = torch.device("cpu")
IN_SECONDS = [("likelihood_ratio", torch.float32), ("common_random_numbers", torch.float64)]  # all others take minutes


@pytest.fixture(autouse=True)
def _nothing_is_compiled_yet() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def backend(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Trace as always, then run the graph with that backend."""
    monkeypatch.setattr(compiled_step, "BACKEND", name)


def first_steps(estimator: Estimator, dtype: torch.dtype, compiled: bool) -> list[Tensor]:
    """Elbo, loss and gradients of the first step and, in float64, of two more.

    In float32 the weights after a step may differ: RMSprop divides rounding by tiny roots.
    """
    module = SBNModule([60, 50], estimator, 200).to(dtype)  # some products are large enough for oneDNN
    if compiled:
        module.compile_step()
    optimizer = module.build_optimizer()
    generator = torch.Generator().manual_seed(1)
    numbers: list[Tensor] = []
    steps = 3 if dtype == torch.float64 else 1
    for step in range(steps):
        x = random_x(100, 200, step, torch.float32)
        noise = module.estimator.draw_noise(module.model, x, generator)  # in float32: the same for both types
        loss, elbo = module.loss_of(x.to(dtype), [draws.to(dtype) for draws in noise])
        optimizer.zero_grad()
        loss.backward()
        numbers += [elbo, loss.detach(), *(p.grad.clone() for p in module.parameters() if p.grad is not None)]
        if step + 1 < steps:
            optimizer.step()
    return numbers


def assert_same(make: Callable[[], Estimator], dtype: torch.dtype) -> None:
    compiled, plain = (first_steps(make(), dtype, compiled) for compiled in (True, False))
    exact = first_steps(make(), torch.float64, compiled=False)
    for ours, reference, number in zip(compiled, plain, exact[: len(plain)], strict=True):
        # In float64 plain steps are the exact ones; in float32 two ways of rounding are each as far from these
        rounding = 2 * (reference - number).abs().max()
        least = 1e-10 if dtype == torch.float64 else 4 * torch.finfo(dtype).eps
        assert (ours - reference).abs().max() <= rounding + least * (1 + reference.abs().max())


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        pytest.param(*case, marks=[] if case in IN_SECONDS else pytest.mark.long)
        for case in product(shipped_names(), (torch.float32, torch.float64))
    ],
)
def test_a_compiled_step_has_the_gradients_of_a_plain_one(name: str, dtype: torch.dtype) -> None:
    assert_same(partial(read_estimator, name), dtype)


@pytest.mark.parametrize("engine", ["batched", "dense"])
def test_engines_in_torch_break_the_graph_and_keep_the_numbers(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    backend(monkeypatch, "aot_eager")
    assert_same(partial(CommonRandomNumbers, engine), torch.float64)


def test_nothing_compiles_again_for_a_last_batch_a_new_rate_or_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    backend(monkeypatch, "aot_eager")
    module = SBNModule([6, 5], read_estimator("likelihood_ratio"), 12)
    module.compile_step()
    optimizer = module.build_optimizer()
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=10)
    for step, rows in enumerate([8, 8, 3, 8, 8, 3, 8]):
        with torch._dynamo.config.patch(error_on_recompile=step > 1):
            x = random_x(rows, 12, step, torch.float32)
            loss, _ = module.loss_of(x, module.estimator.draw_noise(module.model, x))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        module.eval()
        module.train()
    assert isinstance(optimizer.param_groups[0]["lr"], float)


# Adam's count of steps is a float32, from which the compiled update computes 1 - 0.999^steps
@pytest.mark.parametrize(
    ("make", "tolerance"), [(torch.optim.RMSprop, 1e-13), (torch.optim.SGD, 1e-13), (torch.optim.Adam, 1e-4)]
)
def test_a_compiled_update_is_the_optimisers(
    make: type[torch.optim.Optimizer], tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend(monkeypatch, "aot_eager")
    values = []
    for compiled in (True, False):
        value = torch.nn.Parameter(torch.linspace(-1, 1, 5, dtype=torch.float64))
        optimizer = make([value], lr=0.1)  # type: ignore[call-arg]
        if compiled:
            compile_update(optimizer)
        for step in range(4):
            optimizer.param_groups[0]["lr"] = 0.1 / (1 + step)
            optimizer.step(partial(_backward, value))
        values.append(value)
    torch.testing.assert_close(*values, rtol=tolerance, atol=tolerance)


def _backward(value: Tensor) -> float:
    with torch.enable_grad():
        loss = (value**3).sum()
    value.grad = None
    loss.backward()
    return float(loss.detach())


def test_long_runs_are_compiled_and_short_ones_are_not() -> None:
    assert is_worth_compiling("auto", CPU, STEPS_WORTH_IT)
    assert is_worth_compiling("auto", CPU, -1)
    assert not is_worth_compiling("auto", CPU, STEPS_WORTH_IT - 1)
    assert is_worth_compiling(True, CPU, 1)
    assert not is_worth_compiling(False, CPU, STEPS_WORTH_IT)


def test_without_a_compiler_a_sentence_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PATH", "")
    with caplog.at_level(logging.WARNING, logger="releg"):
        assert not is_worth_compiling("auto", CPU, STEPS_WORTH_IT)
    assert "no g++ was found" in caplog.text


def test_a_run_that_continues_in_a_last_batch_compiles_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    module = SBNModule([6, 5], read_estimator("likelihood_ratio"), 12)
    calls: list[int] = []
    monkeypatch.setattr("lightning_modules.sbn_module.compiled", lambda function: _counting(function, calls))
    module.compile_step()
    module._trainer = SimpleNamespace(train_dataloader=SimpleNamespace(batch_size=8))  # type: ignore[assignment]
    for rows in (3, 8, 3):
        x = random_x(rows, 12, rows, torch.float32)
        module.loss_of(x, module.estimator.draw_noise(module.model, x))
    assert calls == [8]


def _counting(function: object, calls: list[int]) -> object:
    def call(estimator: object, model: object, x: Tensor, *more: object) -> object:
        calls.append(len(x))
        return function(estimator, model, x, *more)  # type: ignore[operator]

    return call
