"""What reproduce.sh does around its runs, with a launcher that only leaves behind what finished runs do."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from lightning_modules import RESULTS
from lightning_modules.grid import grid
from lightning_modules.grid.estimate import Cost
from lightning_modules.grid.grid import Grid, reproduce
from lightning_modules.grid.launchers import local as local_launcher
from lightning_modules.grid.launchers.contract import Ended, Launcher, OnUpdate
from lightning_modules.grid.options import parse_options
from lightning_modules.grid.plan import RunStatus
from releg.files import write_json
from releg.records.csv_formats import VARIANCE_COLUMNS, csv_text
from releg.records.file_names import PAPER, RUNS, TABLE1
from releg.records.runs import read_missing, read_runs
from releg.report.curves import measurement_file
from tests.lightning_modules.run_states import leave_finished

RunAll = Callable[[Launcher, list[RunStatus], OnUpdate], None]


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(grid, "_costs", lambda *_: {})  # which would take steps of every kind of run
    shutil.copy(RESULTS / PAPER, tmp_path)
    return tmp_path


def grid_of(results: Path, *words: str, budget: str = "smoke") -> Grid:
    return Grid(parse_options(["--budget", budget, "--results", str(results), *words]), 0)


def launched(monkeypatch: pytest.MonkeyPatch, run_all: RunAll) -> None:
    monkeypatch.setattr(local_launcher.LocalLauncher, "run_all", run_all)


def finish_all(_: Launcher, waiting: list[RunStatus], on_update: OnUpdate) -> None:
    for status in waiting:
        leave_finished(status)
        on_update([], [Ended(status, 1.0, "")])


def test_runs_are_made_in_the_order_of_the_table_which_is_written_after_each(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[int] = []
    made: list[str] = []

    def run_all(_: Launcher, waiting: list[RunStatus], on_update: OnUpdate) -> None:
        made.extend(str(status.run) for status in waiting)
        on_update([], [Ended(waiting[0], 1.0, "the disk is full")])
        for status in waiting[1:3]:
            finish_all(_, [status], on_update)
            shown.append((results / TABLE1).read_text().count('"test_nll_mean"'))
        raise KeyboardInterrupt

    launched(monkeypatch, run_all)
    with pytest.raises(KeyboardInterrupt):
        reproduce(grid_of(results))
    nets = ("200-200", "200-200-200", "200-200-200-200", "32-64-128-256")
    assert made == [f"SBN({net}) {name} seed 0" for net in nets for name in ("crn", "lr")]
    assert shown == [1, 2]
    missing = read_missing(results)
    assert missing["SBN(200-200) crn seed 0"] == "the disk is full"
    assert missing["SBN(32-64-128-256) lr seed 0"] == "not trained yet"


def test_it_ends_with_its_table_beside_the_papers_and_the_published_one_and_nothing_else(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    launched(monkeypatch, finish_all)
    assert reproduce(grid_of(results, "--only", "200-200,crn")) == 0
    head, _, row, *pages = capsys.readouterr().out.splitlines()
    assert head == "| SBN | estimator | negative test elbo | published, standard | paper | steps | minutes |"
    published = json.loads((RESULTS / TABLE1).read_text())
    (bound,) = (each for each in published if (each["architecture"], each["estimator"]) == ("200-200", "crn"))
    assert row.startswith(f"| 200-200 | CRN | 100.00 | {bound['test_nll_mean']:.2f} ")
    assert row.endswith(" | 98.28 | 200 | 1.0 |")
    assert pages == [f"Table 1: {results / 'table1.md'}"]


def test_runs_of_an_earlier_command_stay_in_the_table_while_their_folders_are_here(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched(monkeypatch, finish_all)
    reproduce(grid_of(results, "--only", "200"))  # a net that the paper lacks
    reproduce(grid_of(results, "--only", "200-200,crn", "--seeds", "2"))
    reproduce(grid_of(results, "--only", "200-200,lr"))
    placed = [(*entry.cell, entry.seed) for entry in read_runs(results)]
    first_seed = [("200-200", "lr", 0), ("200-200", "crn", 0), ("200", "lr", 0), ("200", "crn", 0)]
    assert placed == [*first_seed, ("200-200", "crn", 1)]
    shutil.rmtree(results / "runs" / "200")
    reproduce(grid_of(results, "--only", "200-200,lr"))
    assert len(read_runs(results)) == 3


def test_a_record_that_was_changed_is_refused_before_anything_is_trained(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched(monkeypatch, finish_all)
    reproduce(grid_of(results, "--only", "200-200,crn"))
    (results / RUNS).write_text((results / RUNS).read_text().replace('"test/elbo": -100.0', '"test/elbo": -99.0'))
    with pytest.raises(ValueError, match="does not fit its digest"):
        grid_of(results, "--only", "200-200,lr")


def test_so_is_a_damaged_file_of_the_papers_numbers(results: Path) -> None:
    (results / PAPER).write_text("")
    with pytest.raises(ValueError, match=r"paper\.json cannot be read .*, expected the paper's Table 1"):
        grid_of(results)


def test_a_run_that_is_continued_has_as_many_threads_as_before(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of however many runs are left: the number of threads is in the rounding."""
    threads = []

    def run_all(launcher: Launcher, waiting: list[RunStatus], on_update: OnUpdate) -> None:
        threads.append((len(waiting), launcher.threads))
        finish_all(launcher, waiting[:3], on_update)

    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(local_launcher, "cores", lambda: 8)
    monkeypatch.setattr(local_launcher, "BYTES_PER_JOB", 1)
    launched(monkeypatch, run_all)
    for _ in range(2):
        grid_of(results, "--only", "200-200", "--seeds", "2").train()
    assert threads == [(4, 2), (1, 2)]


# --- Figure 1's measurement on all training images


@pytest.fixture
def measured(results: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The checkpoints that `releg variance` was called with; it writes what it would."""
    checkpoints: list[str] = []

    def run(words: list[str], **_: object) -> "subprocess.CompletedProcess[str]":
        given = dict(zip(words[4::2], words[5::2], strict=True))
        checkpoints.append(str(Path(given["--ckpt"]).relative_to(results)))
        row = (5, "likelihood_ratio", 1, "total", 2.0, 0.1, given["--num-images"], given["--samples-per-image"])
        Path(given["--output"]).write_text(csv_text(VARIANCE_COLUMNS, [row]))
        write_json(Path(given["--output"]).with_suffix(".json"), {"commit": "beef"})
        return subprocess.CompletedProcess(words, 0)

    monkeypatch.setattr(grid, "subprocess", SimpleNamespace(run=run))
    launched(monkeypatch, finish_all)
    return checkpoints


FIGURE1_CELL = ("--only", "32-64-128-256,lr")


def test_the_first_lr_run_of_the_published_budget_is_measured_once(results: Path, measured: list[str]) -> None:
    assert reproduce(grid_of(results, *FIGURE1_CELL, "--seeds", "2", budget="standard")) == 0
    assert measured == ["runs/32-64-128-256/likelihood_ratio/seed0/best.ckpt"]
    reproduce(grid_of(results, *FIGURE1_CELL, budget="standard"))
    assert len(measured) == 1
    output = measurement_file(results, "lr")
    output.write_text(output.read_text().replace(",50000,", ",100,"))  # of fewer images than all
    reproduce(grid_of(results, *FIGURE1_CELL, budget="standard"))
    assert len(measured) == 2


@pytest.mark.parametrize(
    ("only", "budget"), [("200-200,lr", "standard"), ("32-64-128-256,crn", "standard"), (FIGURE1_CELL[1], "converged")]
)
def test_other_cells_and_budgets_are_not_measured(only: str, budget: str, results: Path, measured: list[str]) -> None:
    reproduce(grid_of(results, "--only", only, budget=budget))
    assert not measured


def test_the_time_of_the_measurement_is_told_if_its_run_is_made(results: Path) -> None:
    both = grid_of(results, "--only", "32-64-128-256", "--jobs", "2", budget="standard")
    costs = dict.fromkeys(both._settings, Cost(1.0, 0.01, 1.0, 200_000, sample=0.0002))
    words = "; then about 83 min for the gradient variances of Figure 1 on all training images"
    assert both._then(costs) == words
    assert grid_of(results, "--only", "200-200", budget="standard")._then(costs) == ""
