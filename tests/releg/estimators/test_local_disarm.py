"""Local DisARM: its signal, and that a missing term shows."""

import pytest
import torch
from torch import Tensor

from releg.estimators import local_disarm
from releg.estimators.parts.multi_sample import bound_changes
from releg.estimators.parts.simulation import Simulation
from tests.releg.estimators.test_unbiased import largest_bias


def test_the_test_has_power_a_wrong_constant_and_a_missing_weight_are_detected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def doubled(f: Tensor, replaced: Tensor) -> Tensor:
        return 2 * bound_changes(f, replaced)

    assert largest_bias("local disarm", [2]) < 1e-9
    with monkeypatch.context() as patch:
        patch.setattr(local_disarm, "bound_changes", doubled)
        assert largest_bias("local disarm", [2]) > 0.01
    scoreless = property(lambda simulation: [torch.zeros_like(z) for z in simulation.path.z])
    monkeypatch.setattr(Simulation, "scores", scoreless)
    assert largest_bias("local disarm", [2]) > 0.001
