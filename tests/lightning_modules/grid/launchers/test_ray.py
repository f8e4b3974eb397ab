"""Where runs find room on a Ray cluster; tests/faults/test_ray.py starts one."""

import pytest

from lightning_modules.grid.launchers.ray import places
from tests.reproduce_script import needs_ray


@needs_ray
@pytest.mark.parametrize(
    ("cpus", "gpus", "threads", "share", "runs"),
    [
        ([4, 4], [0, 0], 1, 0.0, 8),
        ([4, 5], [0, 0], 2, 0.0, 4),
        ([16, 0], [1, 2], 1, 0.25, 4),  # the GPUs of a machine without CPUs serve nobody
        ([2, 8], [1, 1], 1, 0.25, 6),
    ],
)
def test_a_run_takes_its_place_on_one_machine(
    cpus: list[int], gpus: list[int], threads: int, share: float, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    nodes = [{"Alive": True, "Resources": {"CPU": c, "GPU": g}} for c, g in zip(cpus, gpus, strict=True)]
    lost = {"Alive": False, "Resources": {"CPU": 99, "GPU": 9}}
    monkeypatch.setattr(ray, "nodes", lambda: [*nodes, lost])
    assert places(threads, share) == runs


@needs_ray
def test_a_run_that_no_machine_has_room_for_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    monkeypatch.setattr(ray, "nodes", lambda: [{"Alive": True, "Resources": {"CPU": 4.0}}] * 2)
    with pytest.raises(ValueError, match=r"\(CPUs: \[4.0, 4.0\]; GPUs: .*\), expected 8 CPUs and 0 GPUs on one"):
        places(8, 0.0)  # together they have eight
