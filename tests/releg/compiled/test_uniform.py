"""The compiled draw is torch.rand: the same numbers, and the same generator afterwards."""

import pytest
import torch

from releg.compiled import uniform
from releg.compiled.uniform import draw_uniform

CPU = torch.device("cpu")


@pytest.mark.parametrize("rows", [0, 1, 3, 100])
@pytest.mark.parametrize("widths", [[200, 200], [1], [623, 1, 624, 625]])
def test_numbers_and_state_are_those_of_torch_bit_for_bit(rows: int, widths: list[int]) -> None:
    assert uniform._equals_torch()
    ours, theirs = torch.Generator().manual_seed(rows), torch.Generator().manual_seed(rows)
    for _ in range(3):
        drawn = draw_uniform(rows, widths, torch.float32, CPU, ours)
        assert [values.shape for values in drawn] == [(rows, width) for width in widths]
        for values in drawn:
            assert torch.equal(values, torch.rand(values.shape, generator=theirs))
        assert torch.equal(ours.get_state(), theirs.get_state())
    assert torch.equal(torch.randn(5, generator=ours), torch.randn(5, generator=theirs))


def test_the_default_number_type_and_device_play_no_part() -> None:
    expected = draw_uniform(3, [5], torch.float32, CPU, torch.Generator().manual_seed(1))
    uniform._equals_torch.cache_clear()
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"):
            drawn = draw_uniform(3, [5], torch.float32, CPU, torch.Generator("cpu").manual_seed(1))
            assert uniform._equals_torch()
    finally:
        torch.set_default_dtype(before)
    assert torch.equal(drawn[0], expected[0])


def test_without_a_generator_the_global_one_is_used() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(7)
        (drawn,) = draw_uniform(10, [30], torch.float32, CPU, None)
        torch.manual_seed(7)
        assert torch.equal(drawn, torch.rand(10, 30))


def test_float64_and_a_torch_that_draws_otherwise_are_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(*_: object) -> None:
        raise AssertionError("torch.rand was expected")

    monkeypatch.setattr(uniform, "_equals_torch", lambda: False)
    monkeypatch.setattr(uniform, "_fill", fill)
    for dtype in (torch.float32, torch.float64):
        drawn = draw_uniform(4, [5], dtype, CPU, torch.Generator().manual_seed(1))
        expected = torch.rand(4, 5, generator=torch.Generator().manual_seed(1), dtype=dtype)
        assert torch.equal(drawn[0], expected)


def test_a_state_of_another_layout_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    fill = uniform._fill

    def fill_wrongly(values: torch.Tensor, generator: torch.Generator) -> None:
        fill(values, generator)
        values[-1] = 0.5

    monkeypatch.setattr(uniform, "_fill", fill_wrongly)
    assert not uniform._equals_torch.__wrapped__()
