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
from lightning_modules.grid.options import parse_options
from lightning_modules.grid.plan import RunStatus
from releg.files import write_json
from releg.records.csv_formats import VARIANCE_COLUMNS, csv_text
from releg.records.file_names import PAPER, RUNS, TABLE1, VARIANCE_PAGE
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
    assert "## After 5 steps, on 50,000 images" in (tmp_path / VARIANCE_PAGE).read_text()
