import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from releg.measure.moments import Number, RunningMoments


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.integers(0, 2**31), st.sampled_from([0.0, 1e6, -1e9]))
def test_moments_are_numpys_whatever_the_chunks(sizes: list[int], seed: int, offset: float) -> None:
    values = np.random.default_rng(seed).normal(size=(sum(sizes), 3)) + offset
    merged = None
    for chunk in torch.from_numpy(values).split(sizes):
        merged = RunningMoments.of(chunk, 0).merged(merged)
    assert merged is not None
    assert merged.weight.tolist() == [len(values)] * 3
    np.testing.assert_allclose(merged.mean, values.mean(0), rtol=1e-12)
    np.testing.assert_allclose(merged.m2, ((values - values.mean(0)) ** 2).sum(0), rtol=1e-9, atol=1e-12 * abs(offset))
    if len(values) > 1:
        np.testing.assert_allclose(merged.variance(), values.var(0, ddof=1), rtol=1e-9, atol=1e-12 * abs(offset))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.integers(0, 2**31))
def test_weighted_moments_are_numpys_whatever_the_chunks(sizes: list[int], seed: int) -> None:
    stream = np.random.default_rng(seed)
    values, weights = stream.normal(size=(sum(sizes), 3)), np.exp(20 * stream.normal(size=(sum(sizes), 3)))
    merged = None
    for chunk, weight in zip(
        torch.from_numpy(values).split(sizes), torch.from_numpy(weights).split(sizes), strict=True
    ):
        merged = RunningMoments.of(chunk, 0, weights=weight).merged(merged)
    assert merged is not None
    mean = np.average(values, axis=0, weights=weights)
    np.testing.assert_allclose(merged.weight, weights.sum(0))
    np.testing.assert_allclose(merged.mean, mean, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(merged.m2, (weights * (values - mean) ** 2).sum(0), rtol=1e-6)


def test_float32_values_are_added_in_float64() -> None:
    values = torch.full((1000, 1), 0.1) + 1000
    moments = RunningMoments.of(values, 0)
    assert moments.mean.dtype == torch.float64
    assert moments.mean.item() == values[0].item()
    assert moments.m2.item() == 0


def test_jackknife_of_a_mean_is_its_standard_error() -> None:
    values = torch.randn(30, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    left_out = (values.sum() - values) / 29
    number = Number(values.mean().item(), left_out)
    assert number.standard_error == pytest.approx(values.std().item() / math.sqrt(30))


def test_ratio_of_proportional_numbers_is_certain() -> None:
    left_out = torch.rand(10, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 1
    ratio = Number(6.0, 3 * left_out) / Number(2.0, left_out)
    assert ratio.value == 3
    assert ratio.standard_error == pytest.approx(0, abs=1e-12)
    assert math.isnan((Number(1.0, left_out) / Number(0.0, left_out)).value)
