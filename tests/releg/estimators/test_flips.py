"""Pruned, bitflip-1 and UGC: units chosen at random, and what that costs in variance."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from releg import bernoulli, exact
from releg.estimators import bitflip, pruned, ugc
from releg.estimators.base import Estimator
from releg.estimators.bitflip import Bitflip
from releg.estimators.common_random_numbers import CommonRandomNumbers
from releg.estimators.disarm import DisArm
from releg.estimators.local_expectation import LocalExpectation
from releg.estimators.pruned import Pruned
from releg.estimators.ugc import Ugc
from releg.systematic_sampling import chosen, proportional
from tests.releg.estimators.cases import CASES
from tests.releg.estimators.drawn import drawn, gradients
from tests.releg.estimators.test_unbiased import largest_bias, with_choices
from tests.releg.helpers import random_model, random_x

LAYERS = [4, 3, 2]


@pytest.mark.parametrize("flips", [3, 4])  # one by one, and by the engine
def test_pruned_with_all_flips_is_common_random_numbers(flips: int) -> None:
    model, x, noise = drawn(Pruned(flips), [3, 2, 3])
    whole = gradients(CommonRandomNumbers(), model, x, noise[:3])
    torch.testing.assert_close(gradients(Pruned(flips), model, x, noise), whole)


def test_the_engine_and_single_flips_give_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x, noise = drawn(Pruned(2), [4, 3, 5])
    one_by_one = gradients(Pruned(2), model, x, noise)
    monkeypatch.setattr(pruned, "ENGINE_PAYS", 1)
    torch.testing.assert_close(gradients(Pruned(2), model, x, noise), one_by_one)
    assert all(bool((gradient == 0).any()) for gradient in one_by_one)


def test_one_layer_common_random_numbers_is_local_expectation_and_bitflip_their_random_unit() -> None:
    model, x, noise = drawn(Bitflip(), [5])
    (crn,), (local,) = (gradients(e, model, x, noise[:1]) for e in (CommonRandomNumbers(), LocalExpectation()))
    torch.testing.assert_close(crn, local)
    (flip,) = gradients(Bitflip(), model, x, noise)
    assert bool(((flip != 0).sum(1) == 1).all())
    torch.testing.assert_close(flip, torch.where(flip != 0, 5 * crn, 0))


def test_ugc_is_bitflip_where_a_mean_is_near_0_or_1_and_disarm_elsewhere() -> None:
    model, x, noise = drawn(Ugc(), [6, 4])
    *path_noise, after_opposite, after_flip, choice, deeper_choice = noise
    path = model.infer(x, path_noise)
    disarm = gradients(DisArm(), model, x, [*path_noise, after_opposite])
    flip = gradients(Bitflip(), model, x, [*path_noise, after_flip, choice, deeper_choice])
    for mine, left, right, logits in zip(gradients(Ugc(), model, x, noise), flip, disarm, path.logits, strict=True):
        mean = torch.sigmoid(logits.detach())
        near = torch.minimum(mean, 1 - mean) < 1 / (2 * mean.shape[1])
        assert 0 < int(near.sum()) < near.numel()
        torch.testing.assert_close(mine, torch.where(near, left, right))


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_inclusion_is_proportional_cut_at_one_and_sums_to_the_count(count: int) -> None:
    weights = torch.rand(200, 7, generator=torch.Generator().manual_seed(count), dtype=torch.float64) ** 4
    inclusion = proportional(weights, count)
    torch.testing.assert_close(inclusion.sum(1), torch.full((200,), float(count), dtype=torch.float64))
    assert bool((inclusion <= 1).all())
    below = inclusion < 1
    scale = torch.where(below, inclusion / weights, torch.nan)
    low, high = scale.nan_to_num(torch.inf).amin(1), scale.nan_to_num(-torch.inf).amax(1)
    assert bool(((high - low)[below.any(1)] < 1e-9 * high[below.any(1)]).all())
    assert bool((weights * high[:, None] >= 1 - 1e-9)[~below & below.any(1, keepdim=True)].all())


def test_units_that_weigh_nothing_are_never_chosen_and_harm_nothing() -> None:
    weights = torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.2, 0.0], [1e-300, 0.0, 1.0]], dtype=torch.float64)
    for count in (1, 2):
        inclusion = proportional(weights, count)
        assert bool(inclusion.isfinite().all())
        assert bool((inclusion[weights == 0] == 0).all())
    assert chosen(proportional(weights, 2), weights.new_full((3, 1), 0.3)).tolist()[2] == [True, False, True]


def test_a_unit_is_chosen_as_often_as_its_inclusion_says() -> None:
    inclusion = torch.tensor([[0.1, 0.9, 0.35, 0.65, 1.0, 0.0]], dtype=torch.float64)
    choices = ((torch.arange(10_000, dtype=torch.float64) + 0.5) / 10_000)[:, None]
    kept = chosen(inclusion.expand(10_000, -1), choices)
    assert bool((kept.sum(1) == 3).all())
    torch.testing.assert_close(kept.double().mean(0), inclusion[0], rtol=0, atol=1e-9)


@pytest.mark.parametrize("layers", [[3], [2, 2], [1, 3]])
def test_pruned_varies_more_than_common_random_numbers_by_what_theory_says(layers: list[int]) -> None:
    """Var = Var of common random numbers + E[(1/pi_i - 1) g_i^2], for the biases, whose gradient is that by logits."""
    model, x = random_model(3, layers, 1.5, seed=8), random_x(1, 3, seed=8)
    noise, weights = exact.noise_cells(model, x)
    whole = gradients(CommonRandomNumbers(), model, x.expand(len(weights), -1), noise)
    logits = [a.detach() for a in model.infer(x.expand(len(weights), -1), noise).logits]
    more, probability = with_choices(model, x, noise, weights, lambda a: proportional(bernoulli.variance(a), 1))
    some = gradients(Pruned(), model, x.expand(len(probability), -1), more)
    for g, a, answer in zip(whole, logits, some, strict=True):
        excess = (1 / proportional(bernoulli.variance(a), 1) - 1) * g.square()
        mean = (weights[:, None] * g).sum(0)
        theory = (weights[:, None] * ((g - mean).square() + excess)).sum(0)
        torch.testing.assert_close((probability[:, None] * (answer - mean).square()).sum(0), theory)


@pytest.mark.parametrize(("module", "name"), [(pruned, "pruned"), (bitflip, "bitflip"), (ugc, "ugc")])
def test_the_test_has_power_flips_that_are_not_reweighted_are_detected(
    module: object, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plain(differences: Tensor, slopes: Tensor, inclusion: Tensor, kept: Tensor) -> Tensor:
        return differences * slopes * kept

    monkeypatch.setattr(module, "reweighted", plain)
    assert largest_bias(name, [3]) > 0.01


@pytest.mark.parametrize("make", [CASES["pruned"].make, CASES["bitflip"].make])
def test_a_flip_costs_one_evaluation_per_layer(make: Callable[[], Estimator]) -> None:
    assert make().evaluations(random_model(5, LAYERS)) == 1 + len(LAYERS)
