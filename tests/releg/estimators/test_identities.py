"""What is known of single estimators: closed forms, and how they are related to each other."""

from collections.abc import Callable

import pytest
import torch

from releg import bernoulli, exact
from releg.baselines import InputDependent, RunningAverage
from releg.estimators.arm import Arm
from releg.estimators.base import Estimator
from releg.estimators.common_random_numbers import CommonRandomNumbers
from releg.estimators.disarm import DisArm
from releg.estimators.double_control import DoubleControl
from releg.estimators.gumbel_softmax import GumbelSoftmax
from releg.estimators.likelihood_ratio import LikelihoodRatio
from releg.estimators.local_expectation import LocalExpectation
from releg.estimators.parts.relaxation import hidden, hidden_given
from releg.estimators.parts.signals import continued_signal
from releg.estimators.parts.simulation import simulate
from releg.estimators.rebar import Rebar
from releg.estimators.relax import Relax
from releg.estimators.rodeo import Rodeo
from releg.estimators.vimco import Vimco
from releg.measure.fitting import attached, fitted
from tests.releg.estimators.drawn import answer, drawn, gradients
from tests.releg.helpers import largest_z, random_model, random_x

LAYERS = [4, 3, 2]


def test_a_signal_continued_from_the_path_itself_is_the_path_s() -> None:
    model, x, noise = drawn(CommonRandomNumbers(), LAYERS)
    simulation = simulate(model, x, noise)
    path = simulation.path
    for layer, (below, a) in enumerate(zip(path.parents(), path.logits, strict=True)):
        signal = continued_signal(model, layer, below, a.detach(), path.z[layer], noise)
        torch.testing.assert_close(signal, simulation.signals[layer])


@pytest.mark.parametrize("layers", [[5], LAYERS])
def test_the_slope_of_a_signal_is_its_derivative_with_deeper_layers_fixed(layers: list[int]) -> None:
    model, x, noise = drawn(CommonRandomNumbers(), layers)
    simulation = simulate(model, x, noise)
    path = simulation.path
    for layer, (below, a) in enumerate(zip(path.parents(), path.logits, strict=True)):
        z, deeper = path.z[layer].clone().requires_grad_(), iter(path.z[layer + 1 :])
        signal = continued_signal(model, layer, below, a.detach(), z, noise, lambda *_, fixed=deeper: next(fixed))
        (expected,) = torch.autograd.grad(signal.sum(), z)
        torch.testing.assert_close(simulation.frozen_slope(model, layer), expected)


@pytest.mark.parametrize("layers", [[5], LAYERS])
def test_local_expectation_is_common_random_numbers_in_the_deepest_layer(layers: list[int]) -> None:
    model, x, noise = drawn(CommonRandomNumbers(), layers)
    local, ours = (gradients(e, model, x, noise) for e in (LocalExpectation(), CommonRandomNumbers()))
    torch.testing.assert_close(local[-1], ours[-1])
    for shallow, other in zip(local[:-1], ours[:-1], strict=True):
        assert (shallow - other).abs().max() > 0.01


@pytest.mark.parametrize("make", [lambda: Relax(hidden=3, scale=0.0), lambda: Rebar(scale=0.0)])
def test_a_zero_control_variate_leaves_the_likelihood_ratio(make: Callable[[], Estimator]) -> None:
    model, x, noise = drawn(make(), LAYERS)
    plain = gradients(LikelihoodRatio(), model, x, noise[: len(LAYERS)])
    torch.testing.assert_close(gradients(make(), model, x, noise), plain)


def test_disarm_has_the_expectation_of_arm_and_no_more_variance_on_the_same_draws() -> None:
    rows = 20_000
    model = random_model(6, LAYERS, 1.5, seed=4)
    x = random_x(1, 6, seed=4).expand(rows, -1)
    noise = DisArm().draw_noise(model, x, torch.Generator().manual_seed(5))
    with torch.no_grad():
        arm, disarm = (gradients(e, model, x, noise) for e in (Arm(), DisArm()))
    for left, right in zip(arm, disarm, strict=True):
        difference = left - right
        score = difference.mean(0) / (difference.var(0) / rows).sqrt()
        assert score.abs().max() < largest_z(sum(LAYERS))
        # the difference is uncorrelated with DisARM, so variances add up: Var(ARM) = Var(DisARM) + Var(difference)
        assert bool((right.var(0) < left.var(0)).all())


def test_hidden_variables_have_the_sign_of_the_sample_whatever_the_noise() -> None:
    logits = torch.linspace(-60, 60, 241, dtype=torch.float64)[:, None].expand(-1, 501)
    noise = torch.cat([torch.zeros(1), torch.rand(500, generator=torch.Generator().manual_seed(0))]).double()
    z = bernoulli.sample(logits, noise)
    h = hidden(logits, noise)
    assert bool(((h > 0) == (z == 1)).all())
    for given in (torch.zeros_like(z), torch.ones_like(z)):
        coupled = hidden_given(logits, given, noise)
        assert bool(coupled.isfinite().all())
        inside = logits.abs() < 20  # beyond, one of the two values is never drawn
        assert bool((((2 * given - 1) * coupled > -1e-6) | ~inside).all())  # zero, where the noise lies on the edge


def test_h_given_z_has_the_distribution_of_h() -> None:
    generator = torch.Generator().manual_seed(1)
    noise, fresh = torch.rand(2, 200_000, generator=generator, dtype=torch.float64)
    for logit in (-2.0, 0.0, 1.5):
        logits = torch.full_like(noise, logit)
        z = bernoulli.sample(logits, noise)
        first, second = hidden(logits, noise).sort().values, hidden_given(logits, z, fresh).sort().values
        quantiles = torch.linspace(0.05, 0.95, 19, dtype=torch.float64)
        density = torch.sigmoid(first.quantile(quantiles) - logit) * torch.sigmoid(logit - first.quantile(quantiles))
        standard_error = (2 * quantiles * (1 - quantiles) / len(noise)).sqrt() / density
        assert ((first.quantile(quantiles) - second.quantile(quantiles)) / standard_error).abs().max() < largest_z(57)


def test_vimco_climbs_the_multi_sample_bound_and_not_the_elbo() -> None:
    model, x = random_model(3, [2, 2], seed=5), random_x(1, 3, seed=5)
    names, parameters = zip(*model.named_parameters(), strict=True)
    of_bound = torch.autograd.grad(exact.multi_sample(model, x, samples=2).sum(), parameters)
    expected, of_elbo = exact.expected_gradient(Vimco(samples=2), model, x), exact.elbo_gradient(model, x)
    for name, gradient in zip(names, of_bound, strict=True):
        torch.testing.assert_close(expected[name], gradient)
        assert not torch.allclose(expected[name], of_elbo[name], rtol=0.01), name


def test_a_cold_relaxation_is_the_binary_path() -> None:
    model, x, noise = drawn(GumbelSoftmax(), LAYERS)
    cold = answer(GumbelSoftmax(temperature=1e-6), model, x, noise)
    torch.testing.assert_close(-cold.surrogate.detach(), cold.elbo)


def test_learned_parts_lessen_the_variance() -> None:
    """Relaxations, second control variates and baselines' nets are trained by what they are for."""
    model, images = random_model(12, [8, 6], 0.7, seed=9), random_x(200, 12, seed=9)
    pairs = [
        (attached(make(), model, torch.Generator().manual_seed(0)).eval(), fitted(make(), model, images, 150))
        for make in (Rebar, lambda: Relax(hidden=10), DoubleControl, lambda: Rodeo(hidden=10))
    ]
    average, nets = LikelihoodRatio([RunningAverage()]), LikelihoodRatio([InputDependent(20), RunningAverage()])
    pairs.append((fitted(average, model, images, 150), fitted(nets, model, images, 150)))
    for pair in pairs:
        noise = pair[0].draw_noise(model, images, torch.Generator().manual_seed(1))
        sizes = []
        for estimator in pair:
            found = estimator(model, images, noise).logit_grads
            assert found is not None
            means = [g.unflatten(0, (-1, estimator.samples)).mean(1) for g in found]
            sizes.append(sum(float(g.square().sum()) for g in means))
        assert sizes[1] < 0.97 * sizes[0], (pair[0].label, sizes)
