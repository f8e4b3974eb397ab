"""How runs are spread over the GPUs of this machine."""

import pytest

from lightning_modules.grid.launchers.local import identifiers, least_busy


def test_a_run_goes_to_the_gpu_with_the_fewest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    assert identifiers() == ["3", "5"]
    assert least_busy(["3", "5"], []) == "3"
    assert least_busy(["3", "5"], ["3", "3", "5"]) == "5"
    assert least_busy([], [None]) is None
