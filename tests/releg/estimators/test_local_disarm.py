"""Local DisARM: its signal, and that a missing term shows."""

import pytest
import torch
from torch import Tensor

from releg.estimators import local_disarm
from releg.estimators.parts.multi_sample import bound_changes
from releg.estimators.parts.simulation import Simulation
from tests.releg.estimators.test_unbiased import expectation


def test_the_test_has_power_a_wrong_constant_and_a_missing_weight_are_detected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def doubled(f: Tensor, replaced: Tensor) -> Tensor:
        return 2 * bound_changes(f, replaced)

    def error() -> float:
        answer, expected = expectation("local disarm", [2])
        return max(float((mean - expected[p]).abs().max()) for p, mean in answer.items())

    assert error() < 1e-9
    with monkeypatch.context() as patch:
        patch.setattr(local_disarm, "bound_changes", doubled)
        assert error() > 0.01
    scoreless = property(lambda simulation: [torch.zeros_like(z) for z in simulation.path.z])
    monkeypatch.setattr(Simulation, "scores", scoreless)
    assert error() > 0.001
