"""What every estimator owes its callers, and what it refuses."""

import copy
import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from releg.baselines import InputDependent, RunningAverage
from releg.estimators.base import Estimator
from releg.estimators.gumbel_softmax import GumbelSoftmax
from releg.estimators.leave_one_out import LeaveOneOut
from releg.estimators.likelihood_ratio import LikelihoodRatio
from releg.estimators.local_disarm import LocalDisArm
from releg.estimators.pruned import Pruned
from releg.estimators.rebar import Rebar
from releg.estimators.reinmax import ReinMax
from releg.estimators.relax import Relax
from releg.estimators.rodeo import Rodeo
from releg.estimators.vimco import Vimco
from releg.sbn import SigmoidBeliefNet
from tests.releg.estimators.cases import CASES
from tests.releg.helpers import random_model, random_x

every_estimator = pytest.mark.parametrize("name", CASES)


def attached(name: str, model: SigmoidBeliefNet) -> Estimator:
    estimator = CASES[name].make()
    estimator.attach(model)
    return estimator


@every_estimator
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_answer_has_the_shapes_and_types_of_the_contract(name: str, dtype: torch.dtype) -> None:
    model, x = random_model(5, [3, 1, 2], dtype=dtype), random_x(4, 5, dtype=dtype)
    estimator = attached(name, model)
    answer = estimator(model, x, estimator.draw_noise(model, x))
    assert answer.elbo.shape == answer.surrogate.shape == (4,)
    assert not answer.elbo.requires_grad
    assert answer.elbo.dtype == answer.surrogate.dtype == dtype
    assert [a.shape for a in answer.logits] == [(4 * estimator.samples, size) for size in model.layers]
    assert answer.auxiliary_loss is None or answer.auxiliary_loss.shape == (4,)


@every_estimator
def test_gradient_of_the_surrogate_by_the_logits_is_minus_logit_grads(name: str) -> None:
    model, x = random_model(5, [3, 2, 2]), random_x(4, 5)
    estimator = attached(name, model)
    answer = estimator(model, x, estimator.draw_noise(model, x))
    if answer.logit_grads is None:
        assert not estimator.unbiased  # autograd is all there is
        return
    by_autograd = torch.autograd.grad(answer.surrogate.sum(), answer.logits)
    for computed, stated in zip(by_autograd, answer.logit_grads, strict=True):
        torch.testing.assert_close(-computed * estimator.samples, stated)


@every_estimator
def test_same_noise_same_gradient_and_evaluation_mode_changes_no_state(name: str) -> None:
    model, x = random_model(5, [3, 2]), random_x(4, 5)
    estimator = attached(name, model).eval()
    noise = estimator.draw_noise(model, x, torch.Generator().manual_seed(1))
    before = copy.deepcopy(estimator.state_dict())
    first, second = (
        torch.autograd.grad(estimator(model, x, noise).surrogate.sum(), list(model.parameters())) for _ in range(2)
    )
    assert all(map(torch.equal, first, second))
    assert all(torch.equal(value, before[key]) for key, value in estimator.state_dict().items())


@every_estimator
def test_the_surrogate_trains_only_the_model_and_the_auxiliary_loss_only_the_estimator(name: str) -> None:
    model, x = random_model(5, [3, 2]), random_x(4, 5)
    estimator = attached(name, model)
    answer = estimator(model, x, estimator.draw_noise(model, x))
    answer.surrogate.sum().backward(retain_graph=True)
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert all(parameter.grad is None for parameter in estimator.parameters())
    model.zero_grad()
    if answer.auxiliary_loss is not None:
        answer.auxiliary_loss.sum().backward()
        assert all(parameter.grad is not None for parameter in estimator.parameters())
        assert all(parameter.grad is None for parameter in model.parameters())
    else:
        assert not list(estimator.parameters())


def test_baseline_nets_and_averages_are_saved_and_loaded() -> None:
    model, x = random_model(5, [3, 2]), random_x(4, 5)
    trained = LikelihoodRatio([InputDependent(4), RunningAverage()])
    trained.attach(model)
    for _ in range(3):
        trained(model, x, trained.draw_noise(model, x))
    average = trained.state_dict()["baselines.1.average"]
    assert bool((average != 0).all())
    fresh = LikelihoodRatio([InputDependent(4), RunningAverage()])
    fresh.attach(model)
    fresh.load_state_dict(trained.state_dict())
    noise = trained.draw_noise(model, x)
    first, second = trained(model, x, noise), fresh(model, x, noise)
    assert torch.equal(first.surrogate, second.surrogate)


def test_running_average_follows_its_formula() -> None:
    average = RunningAverage(decay=0.8)
    average.attach(random_model(5, [3, 2]))
    below = torch.zeros(2, 3, dtype=torch.float64)
    signal = torch.tensor([1.0, 3.0], dtype=torch.float64)
    assert average.remainder(1, below, signal).tolist() == [1.0, 3.0]
    assert average.average.tolist() == pytest.approx([0.0, 0.4])
    assert average.remainder(1, below, signal).tolist() == pytest.approx([0.6, 2.6])
    assert average.average.tolist() == pytest.approx([0.0, 0.72])


def with_noise(change: Callable[[list[Tensor]], list[Tensor]]) -> Callable[[SigmoidBeliefNet, Tensor], object]:
    def call(model: SigmoidBeliefNet, x: Tensor) -> object:
        return LikelihoodRatio()(model, x, change(model.draw_noise(x)))

    return call


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (with_noise(lambda noise: [noise[0] + 1, noise[1]]), "expected uniform numbers in [0, 1)"),
        (with_noise(lambda noise: [noise[0], noise[1] - 1]), "noise[1] ranges from -"),
        (with_noise(lambda noise: [noise[0] * torch.nan, noise[1]]), "noise[0] ranges from nan"),
        (
            lambda model, x: LikelihoodRatio()(model, x[:, :4], model.draw_noise(x)),
            "x has shape (4, 4), expected (N, 5)",
        ),
        (
            lambda model, x: LikelihoodRatio([InputDependent()])(model, x, model.draw_noise(x)),
            "the baseline has no net for layer 0",
        ),
    ],
)
def test_bad_input_is_refused_with_expected_got_and_fix(
    call: Callable[[SigmoidBeliefNet, Tensor], object], message: str
) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the message is compared below, literally
        call(random_model(5, [3, 2]), random_x(4, 5))
    assert message in str(error.value)
    assert ";" in str(error.value)  # what to do about it


SETTINGS: list[tuple[Callable[[], object], str]] = [
    (lambda: RunningAverage(decay=1.0), "decay is 1.0, expected a number in [0, 1)"),
    (lambda: InputDependent(hidden=0), "hidden is 0, expected at least 1"),
    (lambda: LikelihoodRatio(samples=0), "samples is 0, expected at least 1"),
    (lambda: LeaveOneOut(samples=1), "samples is 1, expected at least 2; a path is compared with the others"),
    (lambda: Vimco(samples=0), "samples is 0, expected at least 2; a path is compared with the others"),
    (lambda: LocalDisArm(samples=1), "samples is 1, expected at least 2; with one path the bound is the elbo"),
    (lambda: Rodeo(samples=1), "samples is 1, expected at least 2"),
    (lambda: Rodeo(hidden=0), "hidden is 0, expected at least 1"),
    (lambda: Relax(hidden=0), "hidden is 0, expected at least 1"),
    (lambda: Rebar(temperature=-1.0), "temperature is -1.0, expected a positive number"),
    (lambda: GumbelSoftmax(temperature=0.0), "temperature is 0.0, expected a positive number"),
    (lambda: GumbelSoftmax(rao=-1), "rao is -1, expected at least 0"),
    (lambda: ReinMax(temperature=0.0), "temperature is 0.0, expected a positive number"),
    (lambda: ReinMax(draws=-1), "draws is -1, expected at least 0"),
    (lambda: ReinMax(control=1.0), "control is 1.0 with draws = 0, expected draws of at least 1"),
    (lambda: Pruned(flips=0), "flips is 0, expected at least 1"),
]


@pytest.mark.parametrize(("make", "message"), SETTINGS)
def test_impossible_settings_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        make()


@every_estimator
def test_nan_weights_are_refused_and_named(name: str) -> None:
    model, x = random_model(5, [3, 2]), random_x(4, 5)
    estimator = attached(name, model)
    noise = estimator.draw_noise(model, x)
    model.generative[1].weight.data[0, 0] = torch.nan
    with pytest.raises(FloatingPointError, match=r"4 of 4 images is not finite \(not finite: generative.1.weight\)"):
        estimator(model, x, noise)
