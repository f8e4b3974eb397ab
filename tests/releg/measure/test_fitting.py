import copy
from collections.abc import Sequence

import torch
from torch import Tensor

from releg.baselines import InputDependent, RunningAverage
from releg.estimators.base import Estimate, Estimator
from releg.estimators.common_random_numbers import CommonRandomNumbers
from releg.estimators.likelihood_ratio import LikelihoodRatio
from releg.measure.fitting import fitted, have_same_settings
from releg.sbn import SigmoidBeliefNet
from tests.releg.helpers import random_model, random_x


def loss(estimator: Estimator, model: SigmoidBeliefNet, x: Tensor) -> float:
    answer = estimator(model, x, model.draw_noise(x, torch.Generator().manual_seed(9)))
    assert answer.auxiliary_loss is not None
    return answer.auxiliary_loss.mean().item()


def test_baselines_learn_and_nothing_else_changes() -> None:
    model, images = random_model(6, [4, 3], 2.0, seed=2), random_x(64, 6, seed=2)
    estimator = LikelihoodRatio([InputDependent(20), RunningAverage()])
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    short, long = (fitted(estimator, model, images.to(torch.uint8), steps) for steps in (10, 300))
    assert loss(long, model, images) < 0.5 * loss(short, model, images)
    assert not long.training
    assert not list(estimator.parameters())  # the one given was not attached
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(torch.get_rng_state(), state)


def test_fitting_again_gives_the_same() -> None:
    model, images = random_model(6, [4, 3]), random_x(64, 6)
    once, again = (fitted(LikelihoodRatio([InputDependent(5), RunningAverage()]), model, images, 5) for _ in range(2))
    assert all(torch.equal(value, again.state_dict()[key]) for key, value in once.state_dict().items())


class Counter(LikelihoodRatio):
    calls = 0

    def estimate(self, model: SigmoidBeliefNet, x: Tensor, noise: Sequence[Tensor]) -> Estimate:
        Counter.calls += 1
        return super().estimate(model, x, noise)


def test_an_estimator_without_anything_to_learn_is_done_after_one_step() -> None:
    fitted(Counter(), random_model(6, [4, 3]), random_x(64, 6), 100)
    assert Counter.calls == 1


def test_a_running_average_alone_is_fitted_too() -> None:
    model, images = random_model(6, [4, 3], seed=1), random_x(64, 6, seed=1)
    estimator = fitted(LikelihoodRatio([RunningAverage()]), model, images, 50)
    assert bool((estimator.state_dict()["baselines.0.average"] < -1).all())


def test_settings_are_compared_but_not_what_was_learned() -> None:
    model, images = random_model(6, [4, 3]), random_x(64, 6)
    own = fitted(LikelihoodRatio([InputDependent(), RunningAverage()]), model, images, 3)
    assert have_same_settings(own, LikelihoodRatio([InputDependent(), RunningAverage()]), model)
    others = [
        LikelihoodRatio([InputDependent(), RunningAverage(decay=0.9)]),
        LikelihoodRatio([InputDependent(99), RunningAverage()]),
        LikelihoodRatio([RunningAverage(), InputDependent()]),
        LikelihoodRatio([InputDependent(), RunningAverage()], samples=2),
        CommonRandomNumbers("batched"),
    ]
    assert not any(have_same_settings(own, other, model) for other in others)
