import copy
import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from releg import exact
from releg.baselines import InputDependent, RunningAverage
from releg.estimators.base import Estimate, Estimator
from releg.estimators.common_random_numbers import CommonRandomNumbers
from releg.estimators.likelihood_ratio import LikelihoodRatio
from releg.estimators.parts.signals import layer_signals
from releg.kernels.dense import flip_differences
from releg.measure import loop, variance
from releg.measure.moments import GradientVariances, RunningMoments
from releg.measure.variance import centred_targets, measure
from releg.sbn import SigmoidBeliefNet
from tests.releg.estimators.cases import CASES
from tests.releg.helpers import largest_z, mean_gradients, random_model, random_x

LAYERS = [2, 1, 2]


def crn(samples: int = 1) -> CommonRandomNumbers:
    return CommonRandomNumbers("batched", samples)  # the numba engine would have to be compiled first


def lr(model: SigmoidBeliefNet, samples: int = 1) -> LikelihoodRatio:
    """With baselines that are neither zero nor good."""
    estimator = LikelihoodRatio([InputDependent(3), RunningAverage()], samples)
    estimator.attach(model, torch.Generator().manual_seed(3))
    for part in estimator.modules():
        if isinstance(part, RunningAverage):
            part.average[:] = torch.linspace(-3, -1, len(model.layers))
    return estimator


class Weighted:
    """All cells of the noise of one image, and what an estimator answers in each."""

    def __init__(self, estimator: Estimator, model: SigmoidBeliefNet, x: Tensor) -> None:
        self.noise, self.probability = exact.noise_cells(model, x)
        self.answers = mean_gradients(estimator.eval(), model, x.expand(len(self.probability), -1), self.noise)

    def moments(self, values: Tensor) -> RunningMoments:
        return RunningMoments.of(values, 0, weights=self.probability[:, None].expand_as(values))


def enumerated(estimator: Estimator, model: SigmoidBeliefNet, images: Tensor) -> list[dict[str, float]]:
    """Within, between and total of each layer without sampling."""
    cells = [Weighted(estimator, model, x[None]) for x in images]
    layers = []
    for layer in range(len(model.layers)):
        moments = RunningMoments.stacked([cell.moments(cell.answers.by_mean[layer]) for cell in cells])
        within, between = moments.m2.mean().item(), moments.mean.var(0).mean().item()  # the weights add up to 1
        layers.append({"within": within, "between": between, "total": within + between})
    return layers


def over_seeds(
    estimators: dict[str, Estimator], model: SigmoidBeliefNet, images: Tensor, seeds: int, samples: int
) -> list[dict[str, GradientVariances]]:
    return [measure(estimators, model, images, samples, seed) for seed in range(seeds)]


def z_score(values: list[float], expected: float) -> float:
    numbers = torch.tensor(values, dtype=torch.float64)
    return ((numbers.mean() - expected) / (numbers.std() / len(values) ** 0.5)).item()


@pytest.mark.parametrize("paths", [1, 3])
def test_measured_variances_are_those_by_enumeration(paths: int) -> None:
    model, images = random_model(3, LAYERS, 0.7, seed=1), random_x(4, 3, seed=1)
    estimators: dict[str, Estimator] = {"lr": lr(model, paths), "crn": crn(paths)}
    single: dict[str, Estimator] = {"lr": lr(model), "crn": crn()}
    results = over_seeds(estimators, model, images, seeds=30, samples=20)
    limit = largest_z(21)
    for name, estimator in single.items():
        for layer, truth in enumerate(enumerated(estimator, model, images)):
            truth["within"] /= paths  # of the mean of independent paths
            truth["total"] = truth["within"] + truth["between"]
            if name == "lr":
                truth["exact_within"] = truth["within"]
            for kind, expected in truth.items():
                values = [result[name].layers[layer][kind].value for result in results]
                assert abs(z_score(values, expected)) < limit, (name, layer, kind, expected)


@pytest.mark.parametrize("scale", [0.5, 2.0])
@pytest.mark.parametrize("baselines", ["none", "paper"])
def test_exact_variance_of_lr_is_its_enumerated_variance_for_every_unit(scale: float, baselines: str) -> None:
    model, x = random_model(3, LAYERS, scale, seed=2), random_x(1, 3, seed=2)
    estimator = LikelihoodRatio() if baselines == "none" else lr(model)
    theirs, ours = Weighted(estimator, model, x), Weighted(crn(), model, x)
    for layer, gradient in enumerate(theirs.answers.by_mean):
        difference = ours.answers.by_mean[layer]
        target, weight = centred_targets(theirs.answers, layer, difference)
        excess = (theirs.probability[:, None] * weight * target.square()).sum(0)
        torch.testing.assert_close(excess + ours.moments(difference).m2, theirs.moments(gradient).m2)


def with_optimal_baseline(estimator: Estimator, model: SigmoidBeliefNet, x: Tensor, layer: int) -> float:
    """Var(G - c S) at the best c of each unit, S = d log q / d mean: Var(G) - Cov(G, S)^2 / Var(S), averaged."""
    cells = Weighted(estimator, model, x)
    sign = 2 * cells.answers.z[layer] - 1
    score = sign / torch.sigmoid(sign * cells.answers.logits[layer])  # its mean is zero
    gradient, probability = cells.answers.by_mean[layer], cells.probability[:, None]
    covariance, of_score = (probability * gradient * score).sum(0), (probability * score.square()).sum(0)
    return (cells.moments(gradient).m2 - covariance.square() / of_score).mean().item()


@pytest.mark.parametrize("baselines", ["none", "paper"])
def test_measured_variance_with_the_optimal_baseline_is_that_by_enumeration(baselines: str) -> None:
    model, images = random_model(3, LAYERS, 0.7, seed=5), random_x(2, 3, seed=5)
    estimator = LikelihoodRatio() if baselines == "none" else lr(model)
    # with so many samples, the optimum for the sample is low by less than a fifth of the standard error
    results = over_seeds({"lr": estimator, "crn": crn()}, model, images, seeds=20, samples=2000)
    for layer in range(len(LAYERS)):
        expected = [with_optimal_baseline(estimator, model, x[None], layer) for x in images]
        values = [result["lr"].layers[layer]["optimal_within"].value for result in results]
        assert abs(z_score(values, sum(expected) / len(expected))) < largest_z(len(LAYERS)), (layer, expected)


def saturated(logit: float, dtype: torch.dtype) -> SigmoidBeliefNet:
    """All units of the first layer at the given logit, those of the second one not saturated."""
    model = random_model(3, [2, 2], 0.5, seed=7, dtype=dtype)
    torch.nn.init.zeros_(model.inference[0].weight)
    torch.nn.init.constant_(model.inference[0].bias, logit)
    return model


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("logit", [-200.0, -80.0, -30.0, -5.0, 5.0, 30.0, 80.0, 200.0, 700.0])
def test_gradients_by_the_mean_are_right_when_units_saturate(logit: float, dtype: torch.dtype) -> None:
    model, x = saturated(logit, dtype), random_x(4, 3, dtype=dtype)
    noise = model.draw_noise(x, torch.Generator().manual_seed(0))
    wide, wide_x = copy.deepcopy(model).double(), x.double()
    path = wide.infer(wide_x, [u.double() for u in noise])
    differences = flip_differences(wide, path, [])
    signals = layer_signals(wide.log_p_terms(wide_x, path.z), path.log_q_terms())
    for layer in range(2):
        a, z = path.logits[layer].detach(), path.z[layer]
        probability = torch.sigmoid((2 * z - 1) * a)  # d log q / d mean = ±1 / P(z)
        ratio = (2 * z - 1) * signals[layer].detach()[:, None] / probability
        for estimator, truth in ((crn(), differences[layer]), (LikelihoodRatio(), ratio)):
            found = mean_gradients(estimator, model, x, noise).by_mean[layer]
            torch.testing.assert_close(found, truth, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("logit", [-1e4, -1e3, -400.0, 400.0, 1e3, 1e4])
def test_variances_stay_finite_when_units_saturate_beyond_all_bounds(logit: float) -> None:
    model, images = saturated(logit, torch.float32), random_x(3, 3, dtype=torch.float32)
    results = measure({"lr": lr(model), "crn": crn()}, model, images, 10)
    for result in results.values():
        for layer in result.layers:
            assert all(math.isfinite(number.value) for number in layer.values())


def test_exact_variance_counts_flips_too_rare_to_be_sampled() -> None:
    model, images = saturated(30.0, torch.float32), random_x(3, 3, dtype=torch.float32)
    first = measure({"lr": LikelihoodRatio()}, model, images, 100)["lr"].layers[0]
    assert first["within"].value < 100
    assert first["exact_within"].value > 1e10  # e^30 (f0 - b)^2


class WithoutLogitGrads(Estimator):
    """The likelihood ratio as an estimator that builds its surrogate itself."""

    def __init__(self, inner: LikelihoodRatio) -> None:
        super().__init__()
        self.inner, self.samples = inner, inner.samples

    def estimate(self, model: SigmoidBeliefNet, x: Tensor, noise: Sequence[Tensor]) -> Estimate:
        answer = self.inner.estimate(model, x, noise)
        return Estimate(answer.elbo, answer.surrogate, answer.logits)


@pytest.mark.parametrize("paths", [1, 3])
def test_gradients_by_autograd_are_the_stated_ones(paths: int) -> None:
    model, x = random_model(5, [3, 2]), random_x(4, 5)
    inner = lr(model, paths)
    results = measure({"stated": inner, "found": WithoutLogitGrads(inner)}, model, x, 10)
    for stated, found in zip(results["stated"].layers, results["found"].layers, strict=True):
        for kind, number in found.items():
            assert number.value == pytest.approx(stated[kind].value, rel=1e-9, abs=1e-9)


def test_measuring_leaves_model_estimators_and_random_state_alone() -> None:
    model, images = random_model(5, [3, 2]), random_x(4, 5)
    estimator = lr(model)
    parts = (model, estimator)
    before, state = [copy.deepcopy(part.state_dict()) for part in parts], torch.get_rng_state()
    measure({"lr": estimator, "crn": crn()}, model, images, 10)
    assert torch.equal(torch.get_rng_state(), state)
    for part, saved in zip(parts, before, strict=True):
        assert part.training
        assert all(torch.equal(value, saved[key]) for key, value in part.state_dict().items())
        assert all(parameter.grad is None and parameter.requires_grad for parameter in part.parameters())


def test_every_estimator_answers_among_all_others_as_if_alone() -> None:
    model, images = random_model(5, [3, 2]), random_x(2, 5)
    estimators = {name: case.make() for name, case in CASES.items()}
    for estimator in estimators.values():
        estimator.attach(model, torch.Generator().manual_seed(3))
    together = measure(estimators, model, images, 4)
    for name, estimator in estimators.items():
        for one, other in zip(
            measure({name: estimator}, model, images, 4)[name].layers, together[name].layers, strict=True
        ):
            assert {kind: n.value for kind, n in one.items()} == pytest.approx({k: n.value for k, n in other.items()})


class Recorder(LikelihoodRatio):
    """Remembers the rows of each call and the noise of all of them."""

    def __init__(self, samples: int) -> None:
        super().__init__(samples=samples)
        self.calls: list[int] = []
        self.noise: list[Tensor] = []

    def __deepcopy__(self, memo: object) -> "Recorder":
        return self

    def estimate(self, model: SigmoidBeliefNet, x: Tensor, noise: Sequence[Tensor]) -> Estimate:
        self.calls.append(len(x))
        self.noise.append(noise[0])
        return super().estimate(model, x, noise)


@pytest.mark.parametrize(("samples", "paths"), [(30, 1), (230, 1), (30, 7), (1000, 2)])
def test_a_call_never_simulates_more_paths_than_the_bound(
    samples: int, paths: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "PATHS_AT_ONCE", 400)
    model, images = random_model(3, [2, 2]), random_x(7, 3)
    recorder = Recorder(paths)
    done: list[int] = []
    measure({"lr": recorder, "crn": crn()}, model, images, samples, progress=done.append)
    assert max(recorder.calls) <= 400
    assert sum(recorder.calls) == 7 * samples * paths
    assert sum(done) == 7


def test_results_depend_neither_on_the_size_of_a_call_nor_on_the_company(monkeypatch: pytest.MonkeyPatch) -> None:
    model, images = random_model(3, LAYERS, seed=8), random_x(5, 3, seed=8)
    estimator = lr(model)
    alone = measure({"lr": estimator}, model, images, 250)["lr"]
    monkeypatch.setattr(loop, "PATHS_AT_ONCE", 100)
    together = measure({"crn": crn(), "three": lr(model, 3), "lr": estimator}, model, images, 250)["lr"]
    for first, second in zip(alone.layers, together.layers, strict=True):
        for kind, number in first.items():
            assert number.value == pytest.approx(second[kind].value, rel=1e-9, abs=1e-9), kind
            assert number.standard_error == pytest.approx(second[kind].standard_error, rel=1e-6, abs=1e-9), kind


def test_no_two_images_or_samples_share_their_noise() -> None:
    model, images = random_model(3, [2, 2]), random_x(5, 3)
    recorder = Recorder(samples=1)
    measure({"lr": recorder}, model, images, 250)
    noise = torch.cat(recorder.noise)
    assert len(noise.unique(dim=0)) == len(noise) == 5 * 250


def test_rare_events_keep_their_probability_also_for_a_float32_model() -> None:
    model, images = random_model(3, [40, 40], dtype=torch.float32), random_x(2, 3, dtype=torch.float32)
    recorder = Recorder(samples=1)
    measure({"lr": recorder}, model, images, 100)
    noise = torch.cat(recorder.noise)
    on_the_grid_of_float32 = noise * 2**24 == (noise * 2**24).floor()
    assert not bool(on_the_grid_of_float32.any()), "a mean below 2^-24 would be rounded up to it"
    assert model.mean.dtype == torch.float32


def test_standard_error_is_over_images_also_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    model, images = random_model(4, [3, 2], seed=9), random_x(40, 4, seed=9)
    each = measure({"crn": crn()}, model, images, 10)["crn"]
    monkeypatch.setattr(variance, "GROUPS", 10)
    grouped = measure({"crn": crn()}, model, images, 10)["crn"]
    for one, ten in zip(each.layers, grouped.layers, strict=True):
        for kind, number in one.items():
            assert len(number.left_out) == 40
            assert len(ten[kind].left_out) == 10
            assert ten[kind].value == pytest.approx(number.value)
            assert 0.3 < ten[kind].standard_error / number.standard_error < 3


@pytest.mark.parametrize(("images", "samples"), [(1, 10), (0, 10), (5, 1), (5, 0)])
def test_too_few_images_or_samples_are_refused(images: int, samples: int) -> None:
    with pytest.raises(ValueError, match="expected at least 2"):
        measure({"crn": crn()}, random_model(3, [2]), random_x(images, 3), samples)
