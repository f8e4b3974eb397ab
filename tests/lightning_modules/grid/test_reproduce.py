"""What reproduce.sh decides before it starts a run; tests/test_reproduce.py runs it."""

import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

from lightning_modules import CONFIGS, RESULTS
from lightning_modules.grid import local_launcher, reproduce
from lightning_modules.grid.jobs import Launcher
from lightning_modules.grid.options import OTHER_ARCHITECTURES, budget_file, parse_options
from lightning_modules.grid.plan import RunStatus, plan, status_of
from lightning_modules.run.folder import save_config
from lightning_modules.run.provenance import record_provenance
from lightning_modules.run.result import write_result
from releg.naming.file_names import PAPER
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
    folder = status_of(crn).folder
    save_config(folder, status_of(crn).config)
    write_result(folder, RESULT | {"val/elbo": -101.0})
    record_provenance(folder, "a checksum", status_of(crn).config)
    assert reproduce.reproduce(options, 0, "reproduce.sh", time.monotonic()) == 0
    table = capsys.readouterr().out
    assert "| 200 | CRN | 100.00 |  |" in table
    assert "| 200 | LR" not in table
    assert f"{lr}: " not in table
    assert "SBN(200-200) lr seed 0, " in table  # not trained yet
    assert not (tmp_path / "weights").exists()
