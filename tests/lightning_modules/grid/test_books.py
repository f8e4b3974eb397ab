"""runs.json, tables and figures are there whenever a run has ended."""

import json
import shutil
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from lightning_modules import RESULTS
from lightning_modules.grid import books, figure1_measurement, reproduce
from lightning_modules.grid.launchers import local as local_launcher
from lightning_modules.grid.launchers.contract import Ended, Launcher, OnUpdate
from lightning_modules.grid.options import budget_file, parse_options
from lightning_modules.grid.plan import RunStatus, plan, status_of
from lightning_modules.run.folder import save_config
from lightning_modules.run.provenance import record_provenance
from releg.files import write_json
from releg.records.csv_formats import METRICS_COLUMNS, VARIANCE_COLUMNS, csv_text
from releg.records.file_names import FIGURE1, METRICS, PAPER, RUNS, TABLE1
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


def test_what_went_wrong_is_told_in_the_order_of_the_table_not_in_that_of_the_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run_all(self: Launcher, waiting: list[RunStatus], on_update: OnUpdate) -> None:
        for status in reversed(waiting):
            on_update([], [Ended(status, 1.0, "the disk is full")])

    monkeypatch.setattr(local_launcher.LocalLauncher, "run_all", run_all)
    monkeypatch.setattr(reproduce, "_costs", lambda *_: {})
    shutil.copy(RESULTS / PAPER, tmp_path)
    options = parse_options(["--budget", "smoke", "--results", str(tmp_path), "--only", "200-200"])
    assert reproduce.reproduce(options, 0, "bash reproduce.sh", time.monotonic()) == 1
    lines = [line for line in capsys.readouterr().err.splitlines() if "failed" in line]
    assert lines == [f"reproduce.sh: SBN(200-200) {name} seed 0 failed: the disk is full" for name in ("lr", "crn")]


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


def begin(results: Path, *rows: tuple[int, float, str, float]) -> RunStatus:
    """A run of Figure 1 that has come as far as these rows of its metrics.csv."""
    status = next(
        each
        for each in map(status_of, plan(budget_file("smoke"), 1, results))
        if (each.run.architecture, each.run.estimator) == ("32-64-128-256", "crn")
    )
    save_config(status.folder, status.config)
    record_provenance(status.folder, "a checksum", status.config)
    (status.folder / METRICS).write_text(csv_text(METRICS_COLUMNS, rows))
    return status


def empty_results(folder: Path) -> Path:
    folder.mkdir()
    shutil.copy(RESULTS / PAPER, folder)
    return folder


def test_how_far_the_runs_are_is_in_the_tables_after_an_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = empty_results(tmp_path / "results")

    def run_all(self: Launcher, waiting: list[RunStatus], on_update: OnUpdate) -> None:
        on_update([], [Ended(waiting[0], 1.0, "the disk is full")])
        begin(results, (50, 1.5, "val/elbo", -120.5))
        raise KeyboardInterrupt

    monkeypatch.setattr(local_launcher.LocalLauncher, "run_all", run_all)
    monkeypatch.setattr(reproduce, "_costs", lambda *_: {})
    options = parse_options(["--budget", "smoke", "--results", str(results)])
    with pytest.raises(KeyboardInterrupt):
        reproduce.reproduce(options, 0, "bash reproduce.sh", time.monotonic())
    table = (results / "table1.md").read_text()
    assert "| 32-64-128-256 | CRN | 0 | 50 | 200 | 120.50 | 0.0 |" in table
    assert "No run is finished yet." in table
    assert "| ours |" not in table, "no empty table"
    assert "SBN(200-200) lr seed 0: the disk is full" in table


def test_an_unfinished_run_that_is_further_elsewhere_stays_with_its_curve(tmp_path: Path) -> None:
    here, clone = (empty_results(tmp_path / name) for name in ("here", "clone"))
    begin(here, (50, 1.5, "val/elbo", -120.5), (150, 3.0, "val/elbo", -119.25))

    def report(results: Path) -> None:
        options = parse_options(["--budget", "smoke", "--report", "--results", str(results)])
        assert reproduce.reproduce(options, 0, "bash reproduce.sh", time.monotonic()) == 0

    report(here)
    for name in (RUNS, FIGURE1):
        shutil.copy(here / name, clone)
    begin(clone, (50, 1.0, "val/elbo", -120.5))
    report(clone)
    (entry,) = json.loads((clone / RUNS).read_text())["unfinished"]
    assert entry["result"]["steps"] == 150
    assert "\nval_elbo,crn,crn,0,150,3.0,,-119.25," in (clone / FIGURE1).read_text()
    begin(clone, (50, 1.0, "val/elbo", -120.5), (200, 2.0, "val/elbo", -118.5))
    report(clone)
    (entry,) = json.loads((clone / RUNS).read_text())["unfinished"]
    assert entry["result"]["steps"] == 200


def test_a_run_that_has_begun_is_shown_with_its_curve_here_and_in_a_clone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here, clone = (empty_results(tmp_path / name) for name in ("here", "clone"))
    words = ["--budget", "smoke", "--report", "--results"]
    rows = [(50, 1.5, "val/elbo", -120.5), (90, 2.0, "train/elbo", -100.0), (100, 3.0, "val/elbo", -121.25)]
    status = begin(here, *rows)
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
