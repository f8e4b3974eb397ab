"""Several runs on one GPU, without a GPU."""

from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_modules.grid import process, reproduce, runs_per_gpu
from lightning_modules.grid.launchers import local as local_launcher
from lightning_modules.grid.options import CONFIGS, parse_options
from lightning_modules.grid.plan import GridRun, RunStatus, plan, plan_extended, status_of
from releg.without_gpu.fake import FakeTensors

SMOKE = CONFIGS / "budget/smoke.yaml"


def config_of(architecture: str, estimator: str) -> dict[str, Any]:
    runs = [*plan(SMOKE, 1, Path("unused")), *plan_extended(SMOKE, 1, Path("unused"))]
    (run,) = (run for run in runs if (run.architecture, run.estimator) == (architecture, estimator))
    return status_of(run).config


@pytest.mark.parametrize(
    ("architecture", "estimator", "least", "most"),
    [
        ("200-200", "lr", 10, 100),
        ("200-200", "crn", 12, 100),
        ("32-64-128-256", "crn", 50, 1000),  # measures gradient variances, along 500 paths at once, in float64
        ("200-200", "pruned", 10, 1000),  # waits for a number of flips: all of them at most
        ("200-200", "local_expectation", 10, 1000),
    ],
)
def test_a_run_needs_its_steps_and_what_every_process_needs(
    architecture: str, estimator: str, least: int, most: int
) -> None:
    assert least <= runs_per_gpu.mib_of(config_of(architecture, estimator)) - runs_per_gpu.MIB_PER_PROCESS <= most


def test_more_jobs_than_fit_are_refused() -> None:
    runs_per_gpu.check_jobs(8, 900, [8000])
    runs_per_gpu.check_jobs(4, 900, [2000, 2000])
    runs_per_gpu.check_jobs(1, 900, [500])  # one may try: its need is counted high
    with pytest.raises(ValueError, match=r"--jobs is 9, but a run needs up to 900 MiB .* 8000 MiB.*; give --jobs 8"):
        runs_per_gpu.check_jobs(9, 900, [8000])
    with pytest.raises(ValueError, match=r"2000 and 800 MiB are free, .*; give --jobs 2"):
        runs_per_gpu.check_jobs(3, 900, [2000, 800])  # no run has room on two GPUs


def test_a_share_of_a_gpu_that_is_too_small_is_refused() -> None:
    runs_per_gpu.check_share(0.25, 900, 8000)
    with pytest.raises(ValueError, match=r"--gpus-per-run is 0.1, .* 8000 MiB, .*; give --gpus-per-run 0.12"):
        runs_per_gpu.check_share(0.1, 900, 8000)


def test_jobs_are_spread_over_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    assert runs_per_gpu.least_busy(["0", "1"], []) == "0"
    assert runs_per_gpu.least_busy(["0", "1"], ["0", "0", "1"]) == "1"
    assert runs_per_gpu.least_busy([], [None]) is None
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    assert runs_per_gpu.identifiers() == ["3", "5"]


class Done:
    """A process that has ended."""

    returncode = 0

    def poll(self) -> int:
        return 0

    def terminate(self) -> None:
        pass

    def wait(self, timeout: float = 0) -> int:
        return 0


def test_the_grid_asks_for_memory_and_gives_each_run_its_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str | None] = []

    def start(*arguments: Any) -> Done:
        seen.append(arguments[-1])
        return Done()

    with FakeTensors():
        pass  # torch gets ready for fake CUDA without a driver, which it does not once there seems to be a GPU
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(runs_per_gpu, "free_mib", lambda: [900, 900])
    monkeypatch.setattr(process, "start", start)
    monkeypatch.setattr(reproduce, "_costs", lambda *_: {})
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    config = config_of("200-200", "crn")
    runs = [RunStatus(GridRun("200-200", "crn", seed, ()), config, tmp_path, None, 0) for seed in range(2)]
    with pytest.raises(ValueError, match=r"--jobs is 3, .*; give --jobs 2"):
        reproduce._train(runs, runs, parse_options(["--jobs", "3"]), 0, 1.0)
    reproduce._train(runs, runs, parse_options(["--jobs", "2"]), 0, 1.0)
    assert seen == ["0", "1"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    local_launcher.launcher(1, 0).run_all(runs[:1], lambda *_: None)
    assert seen[2:] == [None]
