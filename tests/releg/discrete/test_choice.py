"""Which flips are simulated: chances sum to k, and each is chosen with its chance."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from releg.discrete.choice import chances, choose
from tests.releg.discrete.choices import plain_chances

weights = st.lists(st.floats(1e-12, 1.0), min_size=1, max_size=12)


@given(weights, st.integers(1, 12))
def test_chances_are_proportional_up_to_one_and_sum_to_the_number_wanted(row: list[float], count: int) -> None:
    values = torch.tensor([row], dtype=torch.float64)
    found = chances(values, count)
    expected = plain_chances(values, count) if count < len(row) else torch.ones_like(values)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(found.sum().item(), float(min(count, len(row))))


@given(weights, st.integers(1, 12))
def test_each_is_chosen_for_a_share_of_uniform_numbers_that_is_its_chance(row: list[float], count: int) -> None:
    found = chances(torch.tensor([row], dtype=torch.float64), count)
    uniform = (torch.arange(2000, dtype=torch.float64) + 0.5) / 2000
    chosen = choose(found.expand(2000, -1), uniform)
    assert (chosen.double().mean(0) - found[0]).abs().max() <= 1 / 2000 + 1e-9  # the grid's resolution, both ends
    assert (chosen.sum(1) == min(count, len(row))).all()


def test_rows_with_fewer_positive_weights_than_wanted_take_them_all() -> None:
    found = chances(torch.tensor([[0.0, 0.3, 0.0, 1e-9], [0.0, 0.0, 0.0, 0.0]], dtype=torch.float64), 3)
    assert torch.equal(found[0, [1, 3]], torch.ones(2, dtype=torch.float64))
    assert torch.isfinite(found).all()
