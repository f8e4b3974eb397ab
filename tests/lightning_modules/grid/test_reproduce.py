"""What reproduce.sh decides before it starts a run; tests/test_reproduce.py runs it."""

import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

from lightning_modules import CONFIGS, RESULTS
from lightning_modules.grid import reproduce
from lightning_modules.grid.estimate import Cost
from lightning_modules.grid.launchers import local as local_launcher
from lightning_modules.grid.launchers.contract import Launcher
from lightning_modules.grid.options import OTHER_ARCHITECTURES, budget_file, parse_options
from lightning_modules.grid.plan import GridRun, RunStatus, plan, status_of
from releg.records.file_names import PAPER
from tests.lightning_modules.run_states import RESULT, leave_finished


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


@pytest.mark.parametrize("budget", [budget_file("smoke"), Path("mine") / "standard.yaml"])
def test_a_net_that_the_paper_lacks_has_a_row_once_it_is_trained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], budget: Path
) -> None:
    """Of one's own budget too, whose name is no reason to publish weights."""
    if not budget.is_file():
        budget = tmp_path / budget
        budget.parent.mkdir()
        budget.write_bytes(budget_file("smoke").read_bytes())
    shutil.copy(RESULTS / PAPER, tmp_path)
    words = ["--budget", str(budget), "--results", str(tmp_path), "--report"]
    options = replace(parse_options(words), budget=budget)
    (lr, crn) = plan(budget, 1, tmp_path, OTHER_ARCHITECTURES)
    leave_finished(status_of(crn))
    assert reproduce.reproduce(options, 0, "reproduce.sh", time.monotonic()) == 0
    table = capsys.readouterr().out
    assert "| 200 | CRN | 100.00 |  |" in table
    assert "| 200 | LR" not in table
    assert f"{lr}: " not in table
    assert "SBN(200-200) lr seed 0: not trained yet" in table
    assert not (tmp_path / "weights").exists()


def test_runs_that_were_trained_elsewhere_are_not_taken_for_the_users_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--budget", "smoke", "--results", str(tmp_path), "--report"]
    shutil.copy(RESULTS / PAPER, tmp_path)
    cells = plan(budget_file("smoke"), 1, tmp_path)[:3]
    for run in cells:
        leave_finished(status_of(run))
    for elsewhere, told in ((0, f"written to {tmp_path}\n"), (2, "; 2 of the table's 3 runs were trained elsewhere\n")):
        for run in cells[:elsewhere]:
            shutil.rmtree(status_of(run).folder)
        assert reproduce.reproduce(parse_options(words), 0, "reproduce.sh", time.monotonic()) == 0
        assert capsys.readouterr().err.endswith(told)


@pytest.mark.parametrize(
    ("kinds", "words"),
    [
        ([("200-200", "lr", 0)], ""),
        ([("200-200", "lr", 0), ("32-64-128-256", "lr", 1)], ""),  # whose first seed was trained elsewhere
        (
            [("200-200", "lr", 0), ("32-64-128-256", "lr", 0)],
            "; then about 83 min for the gradient variances of Figure 1 on all training images",
        ),
    ],
)
def test_the_time_of_the_last_measurement_is_told_if_its_run_is_made(
    kinds: list[tuple[str, str, int]], words: str
) -> None:
    costs = {GridRun(*kind, ()): Cost(1.0, 0.01, 1.0, 200_000, sample=0.0002) for kind in kinds}
    assert reproduce._last_measurement(costs, jobs=2) == words
