"""Every estimator against the enumerated gradient of every parameter of both nets."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from releg import estimators, exact, sbn
from releg.estimators.base import Estimator
from releg.estimators.common_random_numbers import CommonRandomNumbers
from releg.estimators.parts import simulation
from releg.kernels import ENGINES
from releg.kernels.dense import flip_differences
from tests.releg.estimators.cases import BIASED, CASES, UNBIASED
from tests.releg.helpers import largest_z, random_model, random_x

MODELS = {  # layers and scale of all weights, biases and prior logits
    "depth 1": ([3], 1.0),
    "depth 2": ([2, 2], 2.0),
    "depth 3": ([2, 2, 2], 1.0),
    "depth 3, strong weights": ([2, 1, 2], 3.0),
    "depth 4": ([2, 1, 2, 2], 1.5),
}
TAME_MODELS = {"depth 1": ([3], 1.0), "depth 2": ([2, 2], 1.0), "depth 3": ([2, 1, 2], 1.0)}  # no event is rare
DATA_SIZE = 3
ROWS = 3000


def listable(names: list[str], samples: int) -> list[str]:
    return [name for name in names if not CASES[name].relaxed and CASES[name].make().samples == samples]


# Their expectation takes more cells of the noise than can be listed, or its value counts: their answers are averaged
NOT_LISTED = sorted(
    {*UNBIASED} - {*listable(UNBIASED, 1), *listable(UNBIASED, 2)} - {name for name in UNBIASED if CASES[name].listed}
)


def z_scores(estimator: Estimator, layers: list[int], scale: float, independent: bool, rows: int = ROWS) -> Tensor:
    """(mean - exact gradient) / standard error of every parameter, from independent single-image answers.

    Where paths are independent the standard error is the enumerated one: a sample would not know of rare events it has
    not seen.
    """
    model, x = random_model(DATA_SIZE, layers, scale, seed=11), random_x(1, DATA_SIZE, seed=11)
    estimator.attach(model)
    warm_up(estimator, model, x)
    copies = x.expand(rows, -1)
    noise = estimator.draw_noise(model, copies, torch.Generator().manual_seed(7))
    expected = exact.objective_gradient(estimator, model, x)
    if independent:
        means = exact.weighted_gradient(estimator, model, copies, noise, model.mean.new_full((rows,), 1 / rows))
        paths = estimator.samples
        estimator.samples = 1
        moments = exact.gradient_moments(estimator, model, x)
        variances = {name: moment.variance / paths for name, moment in moments.items()}
    else:
        answers = exact.row_gradients(estimator, model, copies, noise)
        means = {name: answer.mean(0) for name, answer in answers.items()}
        variances = {name: answer.var(0) for name, answer in answers.items()}
    scores = []
    for name, gradient in expected.items():
        error = means[name] - gradient
        rounding = 1e-12 * (1 + gradient.abs())  # some answers do not vary at all: then they must be exact
        scores.append((error / ((variances[name] / rows).sqrt() + rounding)).flatten())
    return torch.cat(scores)


def warm_up(estimator: Estimator, model: sbn.SigmoidBeliefNet, x: Tensor) -> None:
    """Move running averages and nets away from zero, so that a bias they cause can show."""
    rows = x.expand(50, -1)
    for step in range(20):
        estimator(model, rows, estimator.draw_noise(model, rows, torch.Generator().manual_seed(step)))
    for parameter in estimator.parameters():
        parameter.data += 0.1


def scores_of(name: str, layers: list[int], scale: float, rows: int = ROWS) -> Tensor:
    return z_scores(CASES[name].make(), layers, scale, CASES[name].independent, rows)


@pytest.mark.parametrize("model", TAME_MODELS)
@pytest.mark.parametrize("name", NOT_LISTED)
def test_mean_of_many_answers_is_the_enumerated_gradient(name: str, model: str) -> None:
    scores = scores_of(name, *TAME_MODELS[model], rows=2 * ROWS)
    assert scores.abs().max() < largest_z(len(scores)), scores


def expectation(name: str, layers: list[int]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The answer's expectation over all noise, and the enumerated gradient."""
    case = CASES[name]
    estimator = case.make()
    model, x = random_model(DATA_SIZE, layers, 2.0, seed=3), random_x(1, DATA_SIZE, seed=3)
    estimator.attach(model)
    warm_up(estimator, model, x)
    noise, weights = exact.noise_tuples(estimator, model, x, case.extra(len(layers)), case.opposite)
    if case.inclusion is not None:
        noise, weights = with_choices(model, x, noise, weights, case.inclusion)
    answer = exact.weighted_gradient(estimator, model, x.expand(len(weights), -1), noise, weights)
    return answer, exact.objective_gradient(estimator, model, x)


def largest_bias(name: str, layers: list[int]) -> float:
    """Of any parameter; right answers leave 1e-11."""
    answer, expected = expectation(name, layers)
    return max(float((mean - expected[p]).abs().max()) for p, mean in answer.items())


def with_choices(
    model: sbn.SigmoidBeliefNet,
    x: Tensor,
    noise: list[Tensor],
    weights: Tensor,
    inclusion: Callable[[Tensor], Tensor],
) -> tuple[list[Tensor], Tensor]:
    """Noise times all cells of the numbers that choose units: systematic sampling changes its mind where c_i ends."""
    for layer in range(len(model.layers)):
        inputs = x if layer == 0 else exact.states(model.layers[layer - 1]).to(model.mean)
        ends = inclusion(model.inference_logits(layer, inputs).detach()).cumsum(-1).flatten() % 1
        edges = torch.cat([ends.new_zeros(1), ends, ends.new_ones(1)]).unique()
        middles, widths = (edges[1:] + edges[:-1]) / 2, edges[1:] - edges[:-1]
        middles, widths = middles[widths > 1e-12], widths[widths > 1e-12]  # ends that differ by rounding
        noise = [values.repeat_interleave(len(widths), dim=0) for values in noise]
        noise.append(middles.repeat(len(weights))[:, None])
        weights = (weights[:, None] * widths).flatten()
    return noise, weights


def listable_nets(name: str) -> list[list[int]]:
    """ARM and DisARM simulate anew below every layer: at depth 4 that makes 1e8 cells."""
    if (given := CASES[name].nets) is not None:
        return [list(layers) for layers in given]
    nets = [[3], [2, 2], [1, 1, 1], [1, 2, 1], [1, 1, 2, 1]]
    return [layers for layers in nets if len(layers) < 4 or not CASES[name].extra(len(layers))]


ONE_PATH = [(name, layers) for name in listable(UNBIASED, 1) for layers in listable_nets(name)]
TWO_PATHS = [
    (name, layers) for name in listable(UNBIASED, 2) for layers in CASES[name].nets or [[2], [1, 1], [1, 1, 1]]
]


@pytest.mark.parametrize(("name", "layers"), [*ONE_PATH, *TWO_PATHS])
def test_expectation_over_all_noise_is_the_enumerated_gradient_to_rounding(name: str, layers: list[int]) -> None:
    answer, expected = expectation(name, layers)
    for parameter, mean in answer.items():
        torch.testing.assert_close(mean, expected[parameter], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", [name for name in BIASED if name != "reinmax"])  # its small bias is enumerated below
def test_biased_estimators_are_detected(name: str) -> None:
    ratios = []
    for layers, scale in MODELS.values():
        scores = scores_of(name, layers, scale)
        ratios.append(float(scores.abs().max()) / largest_z(len(scores)))
        if ratios[-1] > 2:
            return
    raise AssertionError(ratios)


@pytest.mark.parametrize("name", listable(BIASED, 1))
def test_biased_estimators_are_detected_by_their_expectation(name: str) -> None:
    assert largest_bias(name, [2, 1, 2]) > 0.01


def test_every_estimator_of_the_package_is_in_the_list() -> None:
    files = {path.stem for path in Path(estimators.__file__).parent.glob("*.py")} - {"__init__", "base"}
    assert {type(case.make()).__module__.rpartition(".")[2] for case in CASES.values()} == files


def prior_at_the_mean(
    model: sbn.SigmoidBeliefNet, path: sbn.Trajectory, generative_logits: list[Tensor]
) -> list[Tensor]:
    """A wrong engine: a flipped unit of the deepest layer is scored by the prior at its mean, so f1 - f0 lacks it."""
    *shallower, deepest = flip_differences(model, path, generative_logits)
    return [*shallower, deepest - model.prior_logits.detach()]


def descendants_not_simulated(
    model: sbn.SigmoidBeliefNet, path: sbn.Trajectory, generative_logits: list[Tensor]
) -> list[Tensor]:
    """A wrong engine: the deeper layers keep their values when a unit above them is flipped."""
    frozen = [torch.where(z == 1, 0.0, 1 - 1e-16) for z in path.z]  # noise that makes every unit stay as it is
    return flip_differences(model, replace(path, noise=frozen), generative_logits)


@pytest.mark.parametrize("engine", [prior_at_the_mean, descendants_not_simulated])
@pytest.mark.parametrize("model", ["depth 2", "depth 3"])
def test_the_test_has_power_a_broken_engine_is_detected(
    engine: Callable[..., list[Tensor]], model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ENGINES, "dense", replace(ENGINES["dense"], differences=engine))
    scores = z_scores(CommonRandomNumbers("dense"), *MODELS[model], independent=True)
    assert scores.abs().max() > 2 * largest_z(len(scores))


def test_the_test_has_power_a_likelihood_ratio_without_one_term_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_prior(log_p_terms: list[Tensor], log_q_terms: list[Tensor]) -> list[Tensor]:
        return original([*log_p_terms[:-1], torch.zeros_like(log_p_terms[-1])], log_q_terms)

    original = simulation.layer_signals
    monkeypatch.setattr(simulation, "layer_signals", without_prior)
    scores = scores_of("lr without baseline", *MODELS["depth 2"])
    assert scores.abs().max() > 2 * largest_z(len(scores))
