"""runs.json, tables and figures are there whenever a run has ended."""

import json
import shutil
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from lightning_modules import RESULTS
from lightning_modules.grid import books, figure1_measurement, local_launcher, reproduce
from lightning_modules.grid.jobs import Ended, Launcher, OnUpdate
from lightning_modules.grid.options import budget_file, parse_options
from lightning_modules.grid.plan import RunStatus, plan, status_of
from lightning_modules.run.folder import save_config
from lightning_modules.run.provenance import record_provenance
from releg.files import write_json
from releg.naming.csv_formats import METRICS_COLUMNS, VARIANCE_COLUMNS, csv_text
from releg.naming.file_names import FIGURE1, METRICS, PAPER, RUNS, TABLE1
from tests.lightning_modules.run_states import leave_finished, save_best
from tests.releg.helpers import random_model


def test_tables_are_there_after_each_run_and_stay_after_an_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = []

    def run_all(self: Launcher, waiting: list[RunStatus], on_update: OnUpdate) -> None:
        on_update([], [Ended(waiting[0], 1.0, "the disk is full")])
        for status in waiting[1:3]:
            leave_finished(status)
            on_update([], [Ended(status, 1.0, "")])
            shown.append((tmp_path / TABLE1).read_text().count('"test_nll_mean"'))
        raise KeyboardInterrupt

    monkeypatch.setattr(local_launcher.LocalLauncher, "run_all", run_all)
    monkeypatch.setattr(reproduce, "_costs", lambda *_: {})
    shutil.copy(RESULTS / PAPER, tmp_path)
    options = parse_options(["--budget", "smoke", "--results", str(tmp_path)])
    with pytest.raises(KeyboardInterrupt):
        reproduce.reproduce(options, 0, "bash reproduce.sh", time.monotonic())
    assert shown == [1, 2]
    assert json.loads((tmp_path / RUNS).read_text())["missing"]["SBN(200-200) lr seed 0"] == "the disk is full"
    assert "SBN(32-64-128-256) crn seed 0: not trained yet" in (tmp_path / "table1.md").read_text()


@pytest.mark.parametrize("error", [ValueError("a damaged file"), KeyError("config"), OSError("the disk is full")])
def test_what_keeps_the_tables_from_being_written_does_not_end_the_runs(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = []
    write_all = books.write_all

    def fail(results: Path) -> str:
        raise error

    def run_all(self: Launcher, waiting: list[RunStatus], on_update: OnUpdate) -> None:
        monkeypatch.setattr(books, "write_all", fail)
        for status in waiting:
            leave_finished(status)
            made.append(status.run)
            on_update([], [Ended(status, 1.0, "")])
        monkeypatch.setattr(books, "write_all", write_all)

    monkeypatch.setattr(local_launcher.LocalLauncher, "run_all", run_all)
    monkeypatch.setattr(reproduce, "_costs", lambda *_: {})
    shutil.copy(RESULTS / PAPER, tmp_path)
    options = parse_options(["--budget", "smoke", "--results", str(tmp_path), "--only", "200-200"])
    assert reproduce.reproduce(options, 0, "bash reproduce.sh", time.monotonic()) == 0
    assert len(made) == 2
    printed = capsys.readouterr()
    assert printed.err.count(f"the tables could not be written yet ({type(error).__name__}: ") == 2
    assert "| 200-200 | CRN | 100.00 |" in printed.out


def test_the_published_table_has_weights_after_each_run_and_ends_with_the_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = []

    def run_all(self: Launcher, waiting: list[RunStatus], on_update: OnUpdate) -> None:
        for status in waiting:
            save_best(status.folder, random_model(784, status.config["model"]["layers"]))
            leave_finished(status)
            on_update([], [Ended(status, 1.0, "")])
            there.append(len(list((tmp_path / "weights").glob("*/*.safetensors"))))

    def variance(words: list[str], **_: object) -> "subprocess.CompletedProcess[str]":
        output = Path(words[words.index("--output") + 1])
        row = (5, "likelihood_ratio", 1, "total", 2.0, 0.1, 50_000, 1_000)
        output.write_text(csv_text(VARIANCE_COLUMNS, [row]))
        write_json(output.with_suffix(".json"), {"commit": "beef"})
        return subprocess.CompletedProcess(words, 0)

    monkeypatch.setattr(local_launcher.LocalLauncher, "run_all", run_all)
    monkeypatch.setattr(reproduce, "_costs", lambda *_: {})
    monkeypatch.setattr(figure1_measurement, "subprocess", SimpleNamespace(run=variance))
    shutil.copy(RESULTS / PAPER, tmp_path)
    words = ["--budget", "standard", "--results", str(tmp_path), "--only", "32-64-128-256"]
    assert reproduce.reproduce(parse_options(words), 0, "bash reproduce.sh", time.monotonic()) == 0
    assert there == [1, 2]
    assert "\ntotal,lr,lr,0,5,,1,2.0,0.1,50000,1000\n" in (tmp_path / FIGURE1).read_text()


def test_a_run_that_has_begun_is_shown_with_its_curve_here_and_in_a_clone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here, clone = tmp_path / "here", tmp_path / "clone"
    for folder in (here, clone):
        folder.mkdir()
        shutil.copy(RESULTS / PAPER, folder)
    words = ["--budget", "smoke", "--report", "--results"]
    status = next(
        each
        for each in map(status_of, plan(budget_file("smoke"), 1, here))
        if (each.run.architecture, each.run.estimator) == ("32-64-128-256", "crn")
    )
    save_config(status.folder, status.config)
    record_provenance(status.folder, "a checksum", status.config)
    rows = [(50, 1.5, "val/elbo", -120.5), (90, 2.0, "train/elbo", -100.0), (100, 3.0, "val/elbo", -121.25)]
    (status.folder / METRICS).write_text(csv_text(METRICS_COLUMNS, rows))
    shown = "| 32-64-128-256 | CRN | 0 | 100 | 200 | 120.50 | 0.1 |"
    for folder in (here, clone):
        assert reproduce.reproduce(parse_options([*words, str(folder)]), 0, "bash reproduce.sh", time.monotonic()) == 0
        table = capsys.readouterr().out
        assert shown in table
        assert "SBN(32-64-128-256) crn" not in table, "it is not among what was not trained yet"
        assert "SBN(32-64-128-256) lr seed 0: not trained yet" in table
        assert "\nval_elbo,crn,crn,0,100,3.0,,-121.25," in (folder / FIGURE1).read_text()
        if folder == here:
            for name in (RUNS, FIGURE1):
                shutil.copy(here / name, clone)
    leave_finished(status)
    assert reproduce.reproduce(parse_options([*words, str(here)]), 0, "bash reproduce.sh", time.monotonic()) == 0
    assert "unfinished" not in json.loads((here / RUNS).read_text())
