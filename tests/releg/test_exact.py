import pytest
import torch

from releg import exact
from releg.estimators.likelihood_ratio import LikelihoodRatio
from tests.releg.helpers import random_model, random_x


def test_states_lists_every_binary_vector_once() -> None:
    assert sorted(map(tuple, exact.states(3).tolist())) == [(a, b, c) for a in (0, 1) for b in (0, 1) for c in (0, 1)]


def test_elbo_gradient_agrees_with_finite_differences() -> None:
    model, x = random_model(3, [2, 1, 2], seed=1), random_x(2, 3)
    gradient = exact.elbo_gradient(model, x)
    step = 1e-6
    for name, parameter in model.named_parameters():
        for index in range(parameter.numel()):
            values = []
            for sign in (1, -1):
                with torch.no_grad():
                    parameter.view(-1)[index] += sign * step
                    values.append(exact.elbo(model, x).sum().item())
                    parameter.view(-1)[index] -= sign * step
            slope = (values[0] - values[1]) / (2 * step)
            assert gradient[name].view(-1)[index].item() == pytest.approx(slope, abs=1e-7, rel=1e-6), name


def test_noise_cells_reproduce_the_distribution_of_z() -> None:
    model, x = random_model(3, [2, 2], seed=2), random_x(1, 3)
    noise, probability = exact.noise_cells(model, x)
    path = model.infer(x.expand(len(probability), -1), noise)
    code = torch.cat(path.z, dim=1).long() @ (2 ** torch.arange(4))
    frequency = torch.zeros(16, dtype=torch.float64).index_add(0, code, probability)
    _, log_q = exact.log_tables(model, x)
    torch.testing.assert_close(frequency, log_q[0].exp().detach())


def test_the_expected_gradient_is_the_mean_of_the_moments() -> None:
    model, x, estimator = random_model(3, [2, 1], seed=4), random_x(1, 3), LikelihoodRatio([], samples=2)
    moments = exact.gradient_moments(estimator, model, x)
    for name, mean in exact.expected_gradient(estimator, model, x).items():
        torch.testing.assert_close(mean, moments[name].mean)


@pytest.mark.parametrize("block", [1, 4, 100])
def test_the_weighted_gradient_adds_up_the_gradients_of_single_rows(block: int) -> None:
    model, x, estimator = random_model(3, [2, 2], seed=5), random_x(7, 3), LikelihoodRatio([])
    noise, weights = estimator.draw_noise(model, x), torch.arange(7, dtype=x.dtype)
    rows = exact.row_gradients(estimator, model, x, noise)
    for name, total in exact.weighted_gradient(estimator, model, x, noise, weights, block).items():
        torch.testing.assert_close(total, torch.einsum("b,b...->...", weights, rows[name]))


def test_a_model_too_large_to_list_is_refused_with_a_sentence() -> None:
    with pytest.raises(ValueError, match="expected at most 262144; use a smaller model"):
        exact.elbo(random_model(3, [20]), random_x(1, 3))
