"""The figures of releg compare against gradients taken one by one."""

import pytest
import torch
from torch import Tensor

from releg import exact
from releg.estimators.base import Estimator
from releg.estimators.common_random_numbers import CommonRandomNumbers
from releg.estimators.gumbel_softmax import GumbelSoftmax
from releg.estimators.leave_one_out import LeaveOneOut
from releg.estimators.likelihood_ratio import LikelihoodRatio
from releg.estimators.straight_through import StraightThrough
from releg.measure.bias import compare, figure, reference_moments
from releg.sbn import SigmoidBeliefNet
from releg.seeds import seed_for
from tests.releg.helpers import mean_gradients, random_model, random_x

LAYERS = [4, 3]
SAMPLES = 30


@pytest.fixture
def model() -> SigmoidBeliefNet:
    return random_model(6, LAYERS, 1.0, seed=3)


def gradients_one_by_one(estimator: Estimator, model: SigmoidBeliefNet, image: Tensor, number: int) -> Tensor:
    """(S, parameters of the inference net), the same noise as in compare."""
    generator = torch.Generator().manual_seed(seed_for(0, "compare", number, 0))
    x = image.expand(SAMPLES, -1)
    rows = exact.row_gradients(estimator, model, x, estimator.draw_noise(model, x, generator))
    return torch.cat([g.flatten(1) for name, g in rows.items() if name.startswith("inference")], dim=1)


@pytest.mark.parametrize("estimator", [LikelihoodRatio(), CommonRandomNumbers(), LeaveOneOut(3), GumbelSoftmax()])
def test_variances_over_all_parameters_are_those_of_gradients_taken_one_by_one(
    estimator: Estimator, model: SigmoidBeliefNet
) -> None:
    images = random_x(5, 6, seed=1)
    reference = reference_moments(model, images, 10, 0)
    found = compare(estimator, model, images, SAMPLES, reference)
    each = torch.stack([gradients_one_by_one(estimator, model, image, i) for i, image in enumerate(images)])
    within = each.var(1).sum(-1)  # (I,)
    assert found["within"]["value"] == pytest.approx(float(within.mean()), rel=1e-9)
    assert found["within"]["standard_error"] == pytest.approx(float(within.std() / 5**0.5), rel=1e-9)
    first = LAYERS[0] * (model.data_size + 1)  # parameters of the first layer
    by_layer = [part.sum(1) for part in each.var(1).tensor_split([first], 1)]
    torch.testing.assert_close(
        torch.tensor(found["within_by_image"]).double(), torch.stack(by_layer), rtol=1e-5, atol=0
    )
    between = float(each.mean(1).var(0).sum()) - float(within.mean()) / SAMPLES
    assert found["total"]["value"] == pytest.approx(float(within.mean()) + between, rel=1e-5)


def test_bias_by_layer_is_that_of_gradients_by_the_means(model: SigmoidBeliefNet) -> None:
    images, estimator = random_x(5, 6, seed=1), StraightThrough()
    found = compare(estimator, model, images, SAMPLES, reference_moments(model, images, 40, 0))
    squares: list[list[float]] = [[] for _ in LAYERS]
    for number, image in enumerate(images):
        means, errors = [], []
        for kind, count, position in ((estimator, SAMPLES, "compare"), (CommonRandomNumbers(), 40, "reference")):
            generator, x = torch.Generator().manual_seed(seed_for(0, position, number, 0)), image.expand(count, -1)
            by_mean = mean_gradients(kind, model, x, kind.draw_noise(model, x, generator)).by_mean  # (S, H) per layer
            means.append([layer.mean(0) for layer in by_mean])
            errors.append([layer.var(0) / count for layer in by_mean])
        for layer, (mine, theirs) in enumerate(zip(*means, strict=True)):
            squares[layer].append(float(((mine - theirs).square() - errors[0][layer] - errors[1][layer]).mean()))
    for figures, expected in zip(found["layers"], (figure(torch.tensor(layer)) for layer in squares), strict=True):
        assert figures["bias2"]["value"] == pytest.approx(expected["value"], rel=1e-5)
        assert figures["bias2"]["standard_error"] == pytest.approx(expected["standard_error"], rel=1e-5)


def test_bias_of_a_biased_estimator_is_seen_and_of_others_not(model: SigmoidBeliefNet) -> None:
    images = random_x(90, 6, seed=1)
    reference = reference_moments(model, images, 1000, 0)
    deviations = {}
    for estimator in (CommonRandomNumbers(), LeaveOneOut(), StraightThrough(), GumbelSoftmax()):
        bias = compare(estimator, model, images, 200, reference)["bias2"]
        deviations[type(estimator).__name__] = bias["value"] / bias["standard_error"]
    assert abs(deviations["CommonRandomNumbers"]) < 4
    assert abs(deviations["LeaveOneOut"]) < 4
    assert deviations["StraightThrough"] > 5
    assert deviations["GumbelSoftmax"] > 5
