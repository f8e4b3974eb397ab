"""ARMS: its copula, its expectation by listing all patterns of K samples, and the estimators that it contains."""

import pytest
import torch
from torch import Tensor

from releg import bernoulli, exact
from releg.estimators import arms
from releg.estimators.arms import Arms
from releg.estimators.disarm import DisArm
from releg.estimators.leave_one_out import LeaveOneOut
from releg.estimators.parts.copula import coupled_gradient, coupled_samples
from releg.sbn import SigmoidBeliefNet
from tests.releg.estimators.drawn import drawn, gradients
from tests.releg.estimators.patterns import pattern_probabilities
from tests.releg.helpers import largest_z, random_model, random_x


@pytest.mark.parametrize("paths", [2, 3, 5])
def test_the_copula_s_patterns_have_their_probabilities(paths: int) -> None:
    rows, logits = 50_000, torch.tensor([-4.0, -1.0, -0.1, 0.1, 0.7, 3.0], dtype=torch.float64)
    noise = torch.rand(paths, rows, 6, generator=torch.Generator().manual_seed(paths), dtype=torch.float64)
    first = bernoulli.sample(logits.expand(rows, 6), noise[0])
    z = torch.cat([first[None], coupled_samples(logits.expand(rows, 6), noise[0], noise[1:])])
    patterns = exact.states(paths).double()
    for unit in range(6):
        expected = pattern_probabilities(torch.sigmoid(logits[unit]).expand(len(patterns)), patterns)
        assert float(expected.sum()) == pytest.approx(1)
        seen = (z[:, :, unit].T[:, None] == patterns).all(-1).double().mean(0)
        impossible = expected < 1e-12
        assert not bool(seen[impossible].any())
        error = (expected * (1 - expected) / rows).sqrt().clamp(min=1e-9)
        assert float(((seen - expected) / error)[~impossible].abs().max()) < largest_z(6 * 2**paths)


class Listed(Arms):
    """Takes its samples from the noise: z = 1[noise < 1/2]."""

    def others(self, logits: Tensor, first: Tensor, noise: Tensor) -> Tensor:
        return (noise < 0.5).to(logits.dtype)


def listing(estimator: Arms, model: SigmoidBeliefNet, x: Tensor) -> tuple[list[Tensor], Tensor]:
    """Noise that makes every z of every sample and of all that is simulated below, and its probability."""
    shapes = [noise.shape[1] for noise in estimator.draw_noise(model, x)]
    bits = exact.states(sum(shapes)).to(model.mean)
    noise = [(1 - part) * (1 - 1e-9) for part in bits.split(shapes, dim=1)]
    rows, depth = x.expand(len(bits), -1), len(model.layers)
    path = model.infer(rows, noise[:depth])
    further = iter(noise[depth:])
    weights = torch.ones(len(bits), dtype=model.mean.dtype)
    for layer in range(depth):
        logits = path.logits[layer].detach()
        samples = [path.z[layer]]
        for _ in range(estimator.paths - 1):
            samples.append((next(further) < 0.5).to(logits))
            below = samples[-1]
            for deeper in range(layer + 1, depth):
                a, z = model.inference_logits(deeper, below).detach(), (next(further) < 0.5).to(logits)
                weights *= bernoulli.log_prob(a, z).sum(-1).exp()
                below = z
        patterns = torch.stack(samples, dim=-1)  # (R, H, K)
        for unit in range(logits.shape[1]):
            weights *= pattern_probabilities(torch.sigmoid(logits[:, unit]), patterns[:, unit])
    return noise, weights


def largest_error(estimator: Arms, layers: list[int], scale: float = 1.5) -> float:
    model, x = random_model(3, layers, scale, seed=3), random_x(1, 3, seed=3)
    noise, weights = listing(estimator, model, x)
    assert float(weights.sum()) == pytest.approx(1)
    possible = weights > 1e-15
    noise, weights = [values[possible] for values in noise], weights[possible]
    answer = exact.weighted_gradient(estimator, model, x.expand(len(weights), -1), noise, weights)
    expected = exact.elbo_gradient(model, x)
    return max(float((answer[name] - gradient).abs().max()) for name, gradient in expected.items())


NETS = [(2, [3]), (3, [3]), (4, [2]), (3, [1, 2]), (3, [2, 1]), (4, [1, 1]), (2, [1, 2, 1]), (3, [1, 1, 1])]


@pytest.mark.parametrize(("paths", "layers"), NETS)
def test_expectation_over_all_patterns_is_the_enumerated_gradient(paths: int, layers: list[int]) -> None:
    assert largest_error(Listed(paths), layers) < 1e-10


def test_the_test_has_power_wrong_constants_are_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_pairs(logits: Tensor, paths: int) -> Tensor:
        return torch.zeros_like(logits)

    def as_if_of_all(f: Tensor, z: Tensor, logits: Tensor, both: Tensor) -> Tensor:
        return coupled_gradient(f, z, logits, both) * (len(f) - 1) / len(f)  # 1 / K for 1 / (K - 1)

    with monkeypatch.context() as patch:
        patch.setattr(arms, "both_given_one", without_pairs)
        assert largest_error(Listed(3), [2], scale=0.5) > 0.01
    monkeypatch.setattr(arms, "coupled_gradient", as_if_of_all)
    assert largest_error(Listed(3), [2], scale=0.5) > 0.01


def test_with_two_paths_it_is_disarm() -> None:
    model, x, noise = drawn(Arms(2), [4, 3, 2])
    # behind the path's noise stands, layer by layer, the second sample's own, which K = 2 leaves no use for, and the
    # noise below it, if any
    used = [*noise[:3], noise[4], noise[5], noise[7]]
    torch.testing.assert_close(gradients(Arms(2), model, x, noise), gradients(DisArm(), model, x, used))


class Independent(Arms):
    """ARMS without its copula."""

    def others(self, logits: Tensor, first: Tensor, noise: Tensor) -> Tensor:
        return bernoulli.sample(logits.expand_as(noise), noise)

    def both(self, logits: Tensor) -> Tensor:
        return torch.sigmoid(-logits.abs())


@pytest.mark.parametrize("paths", [2, 4])
def test_with_independent_samples_it_is_rloo_of_siblings(paths: int) -> None:
    model, x, noise = drawn(Arms(paths), [4, 3, 2])
    rloo = LeaveOneOut(paths, siblings=True)
    torch.testing.assert_close(gradients(Independent(paths), model, x, noise), gradients(rloo, model, x, noise))


def test_four_antithetic_samples_vary_less_than_four_independent_ones() -> None:
    model, x = random_model(8, [6], 0.5, seed=6), random_x(1, 8, seed=6).expand(20_000, -1)
    sizes = []
    for estimator in (Arms(4), Independent(4)):
        (found,) = gradients(estimator, model, x, estimator.draw_noise(model, x, torch.Generator().manual_seed(1)))
        sizes.append(float(found.var(0).sum()))
    assert sizes[0] < 0.95 * sizes[1], sizes
