"""What reproduce.sh decides before it starts a run; tests/test_reproduce.py runs it."""

from dataclasses import replace
from pathlib import Path

import pytest

from lightning_modules import CONFIGS
from lightning_modules.grid import local_launcher, reproduce
from lightning_modules.grid.jobs import Launcher
from lightning_modules.grid.options import parse_options
from lightning_modules.grid.plan import RunStatus, plan
from tests.lightning_modules.run_states import RESULT


def test_a_run_that_is_continued_has_as_many_threads_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of however many runs are left: the number of threads is in the rounding."""
    threads = []

    def run_all(self: Launcher, waiting: list[RunStatus], *rest: object) -> None:
        threads.append((len(waiting), self.threads))

    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(local_launcher.LocalLauncher, "run_all", run_all)
    monkeypatch.setattr(local_launcher, "cores", lambda: 8)
    monkeypatch.setattr(local_launcher, "BYTES_PER_JOB", 1)
    monkeypatch.setattr(reproduce, "_costs", lambda *_: {})
    runs = [
        RunStatus(run, {"trainer": {"max_steps": 1}}, tmp_path, None, 0)
        for run in plan(CONFIGS / "budget" / "smoke.yaml", 1, tmp_path)
    ]
    left = [*(replace(status, result=RESULT) for status in runs[:7]), runs[7]]
    for status in (runs, left):
        reproduce._train(status, status, parse_options([]), 0, 1.0)
    assert threads == [(8, 1), (1, 1)]
