import itertools

import pytest
import torch

from releg import bounds, exact
from tests.releg.helpers import largest_z, random_model, random_x


@pytest.mark.parametrize("layers", [[1], [4], [2, 2], [2, 1, 2], [1, 1, 1, 1]])
@pytest.mark.parametrize("scale", [0.5, 1.0, 3.0])
def test_elbo_below_multi_sample_bound_below_log_likelihood_by_enumeration(layers: list[int], scale: float) -> None:
    model, x = random_model(4, layers, scale, seed=len(layers)), random_x(3, 4)
    rungs = [
        exact.elbo(model, x),
        exact.multi_sample(model, x, 2),
        exact.multi_sample(model, x, 3),
        exact.log_likelihood(model, x),
    ]
    rounding = 1e-12 * rungs[0].abs()
    for lower, higher in itertools.pairwise(rungs):
        assert bool((lower <= higher + rounding).all())
    torch.testing.assert_close(exact.multi_sample(model, x, 1), rungs[0])


def test_sampled_bounds_agree_with_the_enumerated_ones() -> None:
    model, x = random_model(4, [2, 2], seed=2), random_x(2, 4)
    draws = 60_000
    weights = bounds.log_weights(model, x, draws, torch.Generator().manual_seed(0))
    single, pairs = weights, bounds.log_mean_weight(weights.reshape(-1, 2)).view(2, -1)
    for values, expected in ((single, exact.elbo(model, x)), (pairs, exact.multi_sample(model, x, 2))):
        z_scores = (values.mean(1) - expected) / (values.std(1) / values.shape[1] ** 0.5)
        assert z_scores.abs().max() < largest_z(4)


@pytest.mark.parametrize("rows_at_once", [100, 7001, 100_000])
def test_every_image_gets_all_its_samples_whatever_fits_at_once(
    rows_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "ROWS_PER_DRAW", rows_at_once)
    monkeypatch.setattr(bounds, "ROWS_AT_ONCE", max(1, rows_at_once // 3))
    model, x = random_model(4, [3, 2], seed=3), random_x(5, 4)
    weights = bounds.log_weights(model, x, 4000, torch.Generator().manual_seed(0))
    assert weights.shape == (5, 4000)
    z_scores = (weights.mean(1) - exact.elbo(model, x)) / (weights.std(1) / 4000**0.5)
    assert z_scores.abs().max() < largest_z(5)


def test_multi_sample_bound_of_one_sample_is_the_elbo() -> None:
    weights = torch.randn(4, 1)
    torch.testing.assert_close(bounds.log_mean_weight(weights), weights.mean(1))


def test_fewer_than_one_sample_is_refused() -> None:
    with pytest.raises(ValueError, match="samples is 0, expected at least 1"):
        bounds.log_weights(random_model(4, [2]), random_x(1, 4), 0)
