"""ReinMax, its variants and Gumbel-Rao: what their slopes are, and where they are exact."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from releg import bernoulli, exact
from releg.estimators.base import Estimator
from releg.estimators.gumbel_softmax import GumbelSoftmax
from releg.estimators.parts.slopes import (
    concrete_slope,
    halfway_logits,
    rao_slope,
    reinmax_slope,
    reinmax_variant_slope,
)
from releg.estimators.reinmax import ReinMax
from releg.estimators.straight_through import StraightThrough
from tests.releg.helpers import random_model, random_x

UNITS = 3
LOGITS = torch.tensor([-2.0, 0.3, 1.7], dtype=torch.float64)


def expected_answer(slope: Callable[[Tensor, Tensor], Tensor], f: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """E[df/dz slope] over all z of three units, and d E[f] / d logits."""
    z = exact.states(UNITS).double().requires_grad_()
    probability = bernoulli.log_prob(LOGITS, z.detach()).sum(1).exp()
    (by_z,) = torch.autograd.grad(f(z).sum(), z)
    values = f(z.detach())
    truth = (probability * values) @ bernoulli.score(LOGITS, z.detach())
    return probability @ (by_z * slope(LOGITS, z.detach())), truth


def quadratic(z: Tensor) -> Tensor:
    matrix = torch.tensor([[1.0, -2.0, 0.5], [0.3, 3.0, 1.1], [0.0, 0.7, -1.5]], dtype=torch.float64)
    return torch.einsum("ni,ij,nj->n", z, matrix, z) + z @ torch.tensor([0.4, -1.0, 2.0], dtype=torch.float64)


def cubic(z: Tensor) -> Tensor:
    return quadratic(z) + z.sum(1) ** 3


def test_reinmax_is_exact_for_quadratic_f_and_only_for_that() -> None:
    answer, truth = expected_answer(reinmax_slope, quadratic)
    torch.testing.assert_close(answer, truth)
    answer, truth = expected_answer(reinmax_slope, cubic)
    assert float((answer - truth).abs().max()) > 0.01


def test_the_test_has_power_straight_through_and_a_wrong_constant_are_not_exact() -> None:
    def euler(logits: Tensor, z: Tensor) -> Tensor:
        return bernoulli.variance(logits)

    def wrong(logits: Tensor, z: Tensor) -> Tensor:
        return reinmax_slope(logits, z) - bernoulli.variance(logits) / 2

    for slope in (euler, wrong):
        answer, truth = expected_answer(slope, quadratic)
        assert float((answer - truth).abs().max()) > 0.01


def test_halfway_logits_are_those_of_the_middle_also_in_saturated_units() -> None:
    logits = torch.linspace(-80, 80, 33, dtype=torch.float64)
    for z in (torch.zeros_like(logits), torch.ones_like(logits)):
        found = halfway_logits(logits, z, 1.0)
        assert bool(found.isfinite().all())
        q = (torch.sigmoid(logits) + z) / 2
        tame = logits.abs() < 20
        torch.testing.assert_close(torch.sigmoid(found)[tame], q[tame])
        torch.testing.assert_close(
            reinmax_slope(logits, z)[tame], (2 * q * (1 - q) - bernoulli.variance(logits) / 2)[tame]
        )
        assert bool(reinmax_slope(logits, z).isfinite().all())


@pytest.mark.parametrize("temperature", [0.3, 1.0])
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_the_rao_slope_is_an_integral_over_the_noise_that_gives_the_sample(temperature: float, value: float) -> None:
    logits = torch.tensor([-1.5, 0.2, 2.0], dtype=torch.float64)
    steps = 200_000
    u = ((torch.arange(steps, dtype=torch.float64) + 0.5) / steps)[:, None]
    slopes = concrete_slope(logits - torch.logit(u), temperature)
    fits = bernoulli.sample(logits.expand(steps, 3), u.expand(steps, 3)) == value
    integral = (slopes * fits).sum(0) / fits.sum(0)
    found = rao_slope(logits, torch.full_like(logits, value), u.expand(-1, 3), temperature)
    torch.testing.assert_close(found, integral, rtol=1e-4, atol=1e-6)


def test_the_variants_are_what_their_formulas_say() -> None:
    z, temperature = torch.tensor([0.0, 1.0, 1.0], dtype=torch.float64), 0.7
    noise = torch.rand(5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    p, half = torch.sigmoid(LOGITS), torch.logit((torch.sigmoid(LOGITS) + z) / 2)
    rao = rao_slope(half, z, noise[1:], temperature)
    torch.testing.assert_close(
        reinmax_variant_slope(LOGITS, z, noise[1:], temperature, 0.0), 2 * rao - p * (1 - p) / 2, rtol=1e-9, atol=1e-12
    )
    soft = torch.sigmoid((half - torch.logit(noise[0])) / temperature)
    control = rao - soft * (1 - soft) / temperature
    torch.testing.assert_close(
        reinmax_variant_slope(LOGITS, z, noise, temperature, 1.5), reinmax_slope(LOGITS, z) + 1.5 * control
    )


@pytest.mark.parametrize("make", [ReinMax, lambda: ReinMax(0.7, 4), lambda: GumbelSoftmax(rao=4)])
def test_forwards_the_path_is_binary_and_the_elbo_its_own(make: Callable[[], Estimator]) -> None:
    model, x = random_model(6, [4, 3], 1.5, seed=4), random_x(20, 6, seed=4)
    estimator = make()
    noise = estimator.draw_noise(model, x, torch.Generator().manual_seed(0))
    answer, plain = estimator(model, x, noise), StraightThrough()(model, x, noise[:2])
    torch.testing.assert_close(answer.elbo, plain.elbo)
    torch.testing.assert_close(-answer.surrogate.detach(), answer.elbo)
