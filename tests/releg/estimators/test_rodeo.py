"""RODEO: its Stein operator, what it is without control, and that a wrong constant shows."""

import pytest
import torch
from torch import Tensor

from releg import bernoulli, exact
from releg.estimators.parts import stein as parts
from releg.estimators.parts import stein_control
from releg.estimators.parts.stein import along_changes, stein, stein_of_score
from tests.releg.estimators.test_unbiased import largest_bias

LOGITS = torch.tensor([-2.0, 0.3, 1.7], dtype=torch.float64)


def function(z: Tensor) -> Tensor:
    return (z @ torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)).exp() + z[..., 0] * z[..., 2]


def flips(z: Tensor) -> Tensor:
    """(N, H, H): row i has unit i flipped."""
    return (z[:, None] - torch.eye(z.shape[1], dtype=z.dtype)).abs()


def test_the_stein_operator_makes_expectations_vanish_whatever_the_function() -> None:
    z = exact.states(3).double()
    logits = LOGITS.expand_as(z)
    probability = bernoulli.log_prob(logits, z).sum(1).exp()
    h, flipped = function(z), function(flips(z))
    assert float(probability @ stein(logits, z, h, flipped)) == pytest.approx(0, abs=1e-12)
    vector = stein_of_score(logits, z, bernoulli.score(logits, z), h, flipped)
    assert float((probability @ vector).abs().max()) < 1e-12
    assert float(vector.abs().max()) > 0.01


def test_the_operator_on_a_vector_is_that_of_its_components() -> None:
    z = exact.states(3).double()
    logits, mean = LOGITS.expand_as(z), torch.sigmoid(LOGITS)
    found = stein_of_score(logits, z, bernoulli.score(logits, z), function(z), function(flips(z)))
    for component in range(3):
        h = function(z) * (z[:, component] - mean[component])
        flipped = function(flips(z)) * (flips(z)[..., component] - mean[component])
        torch.testing.assert_close(found[:, component], stein(logits, z, h, flipped))


def test_taylor_terms_of_flips_are_those_of_the_flipped_z() -> None:
    z = exact.states(3).double()
    slope = torch.rand(8, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    at = (slope * z).sum(1, keepdim=True)
    torch.testing.assert_close(at + along_changes(slope, z), (slope[:, None] * flips(z)).sum(-1))


@pytest.mark.parametrize("name", ["change_chances", "stein_of_score"])
def test_the_test_has_power_a_wrong_operator_is_detected(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def probability_of_one(logits: Tensor, z: Tensor) -> Tensor:
        return torch.sigmoid(logits)

    def without_own_change(logits: Tensor, z: Tensor, score: Tensor, h: Tensor, flipped: Tensor) -> Tensor:
        return stein(logits, z, h, flipped)[:, None] * score

    if name == "change_chances":
        monkeypatch.setattr(parts, name, probability_of_one)
    else:
        monkeypatch.setattr(stein_control, name, without_own_change)
    torch.manual_seed(0)  # of the nets
    assert largest_bias("rodeo", [2]) > 1e-4
