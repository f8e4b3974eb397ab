"""Every estimator against the enumerated gradient of every parameter of both nets."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from releg import exact
from releg.baselines import InputDependent, RunningAverage
from releg.estimators import likelihood_ratio
from releg.estimators.base import Estimator
from releg.estimators.common_random_numbers import CommonRandomNumbers
from releg.estimators.likelihood_ratio import LikelihoodRatio
from releg.kernels.dense import flip_differences
from releg.sbn import Path, SigmoidBeliefNet
from tests.releg.helpers import largest_z, random_model, random_x

UNBIASED: dict[str, Callable[[], Estimator]] = {
    "lr without baseline": LikelihoodRatio,
    "lr with running average": lambda: LikelihoodRatio([RunningAverage()]),
    "lr with input-dependent nets": lambda: LikelihoodRatio([InputDependent(hidden=5)]),
    "lr of the paper": lambda: LikelihoodRatio([InputDependent(hidden=5), RunningAverage()]),
    "lr, 3 samples": lambda: LikelihoodRatio([InputDependent(hidden=5), RunningAverage()], samples=3),
    "crn": CommonRandomNumbers,
    "crn dense": lambda: CommonRandomNumbers(engine="dense"),
    "crn batched": lambda: CommonRandomNumbers(engine="batched"),
    "crn with entropies": lambda: CommonRandomNumbers(entropy=True),
    "crn dense with entropies": lambda: CommonRandomNumbers(engine="dense", entropy=True),
    "crn, 2 samples": lambda: CommonRandomNumbers(samples=2),
}
MODELS = {  # layers and scale of all weights, biases and prior logits
    "depth 1": ([3], 1.0),
    "depth 2": ([2, 2], 2.0),
    "depth 3": ([2, 2, 2], 1.0),
    "depth 3, strong weights": ([2, 1, 2], 3.0),
    "depth 4": ([2, 1, 2, 2], 1.5),
}
DATA_SIZE = 3
ROWS = 3000


def z_scores(estimator: Estimator, layers: list[int], scale: float) -> Tensor:
    """(mean - exact gradient) / standard error of every parameter, from independent single-image answers.

    The standard error is the enumerated one: a sample would not know of rare events it has not seen.
    """
    model, x = random_model(DATA_SIZE, layers, scale, seed=11), random_x(1, DATA_SIZE, seed=11)
    estimator.attach(model)
    warm_up(estimator, model, x)
    rows = x.expand(ROWS, -1)
    noise = estimator.draw_noise(model, rows, torch.Generator().manual_seed(7))
    answers = exact.row_gradients(estimator, model, rows, noise)
    paths = estimator.samples
    estimator.samples = 1
    moments = exact.gradient_moments(estimator, model, x)
    scores = []
    for name, expected in exact.elbo_gradient(model, x).items():
        error = answers[name].mean(0) - expected
        standard_error = (moments[name].variance / (ROWS * paths)).sqrt()
        rounding = 1e-12 * (1 + expected.abs())  # some answers do not vary at all: then they must be exact
        scores.append((error / (standard_error + rounding)).flatten())
    return torch.cat(scores)


def warm_up(estimator: Estimator, model: SigmoidBeliefNet, x: Tensor) -> None:
    """Move running averages and nets away from zero, so that a bias they cause can show."""
    rows = x.expand(50, -1)
    for step in range(20):
        estimator(model, rows, estimator.draw_noise(model, rows, torch.Generator().manual_seed(step)))
    for parameter in estimator.parameters():
        parameter.data += 0.1


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", UNBIASED)
def test_mean_of_many_answers_is_the_enumerated_gradient(name: str, model: str) -> None:
    estimator = UNBIASED[name]()
    assert estimator.unbiased
    scores = z_scores(estimator, *MODELS[model])
    assert scores.abs().max() < largest_z(len(scores)), scores


@pytest.mark.parametrize("name", [name for name, make in UNBIASED.items() if make().samples == 1])
@pytest.mark.parametrize("layers", [[3], [2, 2], [1, 2, 1], [1, 1, 2, 1]])
def test_expectation_over_all_noise_is_the_enumerated_gradient_to_rounding(name: str, layers: list[int]) -> None:
    estimator = UNBIASED[name]()
    model, x = random_model(DATA_SIZE, layers, 2.0, seed=3), random_x(1, DATA_SIZE, seed=3)
    estimator.attach(model)
    warm_up(estimator, model, x)
    expected = exact.elbo_gradient(model, x)
    for parameter, moments in exact.gradient_moments(estimator, model, x).items():
        torch.testing.assert_close(moments.mean, expected[parameter], rtol=1e-9, atol=1e-11)


def prior_at_the_mean(
    model: SigmoidBeliefNet, path: Path, generative_logits: list[Tensor], entropy: bool
) -> list[Tensor]:
    """A wrong engine: a flipped unit of the deepest layer is scored by the prior at its mean, so f1 - f0 lacks it."""
    *shallower, deepest = flip_differences(model, path, generative_logits, entropy)
    return [*shallower, deepest - model.prior_logits.detach()]


def without_own_log_q(
    model: SigmoidBeliefNet, path: Path, generative_logits: list[Tensor], entropy: bool
) -> list[Tensor]:
    """A wrong engine: -log q of the flipped unit is missing from the shallowest layer."""
    shallowest, *deeper = flip_differences(model, path, generative_logits, entropy)
    return [shallowest + path.logits[0].detach(), *deeper]


def descendants_not_simulated(
    model: SigmoidBeliefNet, path: Path, generative_logits: list[Tensor], entropy: bool
) -> list[Tensor]:
    """A wrong engine: the deeper layers keep their values when a unit above them is flipped."""
    frozen = [torch.where(z == 1, 0.0, 1 - 1e-16) for z in path.z]  # noise that makes every unit stay as it is
    return flip_differences(model, replace(path, noise=frozen), generative_logits, entropy)


@pytest.mark.parametrize("engine", [prior_at_the_mean, without_own_log_q, descendants_not_simulated])
@pytest.mark.parametrize("model", ["depth 2", "depth 3"])
def test_the_test_has_power_a_broken_engine_is_detected(engine: Callable[..., list[Tensor]], model: str) -> None:
    estimator = CommonRandomNumbers()
    estimator.engine = engine
    scores = z_scores(estimator, *MODELS[model])
    assert scores.abs().max() > 2 * largest_z(len(scores))


def test_the_test_has_power_a_likelihood_ratio_without_one_term_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_prior(log_p_terms: list[Tensor], log_q_terms: list[Tensor]) -> list[Tensor]:
        return original([*log_p_terms[:-1], torch.zeros_like(log_p_terms[-1])], log_q_terms)

    original = likelihood_ratio.layer_signals
    monkeypatch.setattr(likelihood_ratio, "layer_signals", without_prior)
    scores = z_scores(LikelihoodRatio(), *MODELS["depth 2"])
    assert scores.abs().max() > 2 * largest_z(len(scores))


def test_the_test_has_power_variance_normalization_is_detected() -> None:
    estimator = LikelihoodRatio(variance_normalization=True)
    assert not estimator.unbiased
    scores = z_scores(estimator, *MODELS["depth 2"])
    assert scores.abs().max() > 2 * largest_z(len(scores))
