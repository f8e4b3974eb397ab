from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from releg.seeds import seed_for

parts = st.lists(st.one_of(st.integers(), st.text()), max_size=4).map(tuple)


@given(parts)
def test_a_seed_has_63_bits_and_depends_on_its_parts_only(position: tuple[int | str, ...]) -> None:
    assert 0 <= seed_for(*position) < 2**63
    assert seed_for(*position) == seed_for(*position)


@given(parts, parts)
def test_different_positions_have_different_seeds(one: tuple[int | str, ...], other: tuple[int | str, ...]) -> None:
    assert (seed_for(*one) == seed_for(*other)) == (one == other)


def test_seeds_are_the_same_for_ever() -> None:
    assert seed_for(0, "order", 0) == 4819849257279361181
    assert seed_for() == 5460801731388113703


def test_neighbouring_positions_have_unrelated_bits() -> None:
    seeds = np.array([seed_for(0, "noise", step) for step in range(4096)])
    bits = (seeds[:, None] >> np.arange(63)) & 1  # (4096, 63)
    z = (bits.sum(0) - 2048) / np.sqrt(4096 / 4)
    flips = (bits[1:] != bits[:-1]).sum(0)
    z_flips = (flips - 4095 / 2) / np.sqrt(4095 / 4)
    assert np.abs(np.concatenate([z, z_flips])).max() < 4.3  # 126 z-scores, 0.2% false alarms


@pytest.mark.parametrize("part", [True, np.int64(3), 1.0, None, b"order"])
def test_a_part_that_would_print_in_another_way_is_refused(part: object) -> None:
    with pytest.raises(TypeError, match=r"expected int or str; convert it first"):
        seed_for(0, part)  # type: ignore[arg-type]
