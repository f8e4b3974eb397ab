"""The plan of the grid, the lock on its folder, its display and its estimate of time."""

import copy
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from lightning_modules import CONFIGS
from lightning_modules.gradient_variance import GradientVariance
from lightning_modules.grid import local, reproduce
from lightning_modules.grid.display import GridDisplay, duration
from lightning_modules.grid.estimate import Cost, left_together
from lightning_modules.grid.launch import Ended
from lightning_modules.grid.options import ARCHITECTURES, BUDGETS, ESTIMATORS, RESULTS, parse_options
from lightning_modules.grid.plan import GridRun, RunStatus, plan, status_of
from lightning_modules.run import lock
from lightning_modules.run.folder import save_config
from lightning_modules.run.result import read_result
from lightning_modules.run.settings import build
from releg.architecture import architecture_name

RESULT = {"steps": 5, "best_step": 5, "training_seconds": 1.0, "test/elbo": -100.0, "test/multi_sample_bound": -99.0}


def budget_file(name: str) -> Path:
    return CONFIGS / "budget" / f"{name}.yaml"


def test_reports_call_the_budgets_what_the_script_calls_them() -> None:
    steps = {name: yaml.safe_load(budget_file(name).read_text())["trainer"]["max_steps"] for name in BUDGETS}
    assert steps == BUDGETS


def test_the_grid_has_every_cell_of_the_papers_table_for_every_seed(tmp_path: Path) -> None:
    runs = plan(budget_file("smoke"), 2, tmp_path)
    assert len({(run.architecture, run.estimator, run.seed) for run in runs}) == len(runs) == 16
    assert [run.seed for run in runs] == [0] * 8 + [1] * 8


@pytest.mark.parametrize("name", BUDGETS)
def test_every_budget_can_be_placed_and_measures_the_architecture_of_figure_1(name: str, tmp_path: Path) -> None:
    measured = []
    for run in plan(budget_file(name), 1, tmp_path):
        status = status_of(run)
        assert architecture_name(status.config["model"]["layers"]) == run.architecture
        assert (status.result, status.steps_done) == (None, 0)
        callbacks = status.config["trainer"].get("callbacks") or []
        if callbacks:
            measured.append((run.architecture, run.estimator))
            assert all(each["class_path"].endswith(GradientVariance.__name__) for each in callbacks)
            assert all(step < status.steps for each in callbacks for step in each["init_args"].get("steps") or [])
    assert measured == [("32-64-128-256", "lr"), ("32-64-128-256", "crn")]


def test_a_finished_run_is_recognised_by_its_config_and_not_by_its_folder(tmp_path: Path) -> None:
    run = plan(budget_file("smoke"), 1, tmp_path)[0]
    status = status_of(run)
    save_config(status.folder, {**status.config, "results_dir": "elsewhere"})
    (status.folder / "result.json").write_text(json.dumps(RESULT))
    assert status_of(run).result == RESULT
    longer = status_of(plan(budget_file("quick"), 1, tmp_path)[0])
    assert longer.result is None
    assert longer.folder == status.folder.with_name("seed0-2")


@pytest.mark.parametrize("text", ["", "garbage", "[]", "{}", json.dumps({**RESULT, "test/elbo": float("nan")})])
def test_a_damaged_result_is_told_with_what_to_do(tmp_path: Path, text: str) -> None:
    assert read_result(tmp_path) is None
    (tmp_path / "result.json").write_text(text)
    with pytest.raises(ValueError, match=r"result\.json is damaged, expected .*; delete it, and"):
        read_result(tmp_path)


def test_a_locked_folder_is_refused_and_free_again_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "SECONDS_TO_WAIT", 0.1)
    with (
        lock.locked(tmp_path),
        pytest.raises(BlockingIOError, match=r"another reproduce\.sh \(process \d+\) is working in"),
        lock.locked(tmp_path),
    ):
        pass
    with lock.locked(tmp_path):
        pass


def waiting(tmp_path: Path, count: int, steps_done: int = 0) -> list[RunStatus]:
    names = [(architecture, estimator) for architecture in ARCHITECTURES for estimator in ESTIMATORS]
    config = {"trainer": {"max_steps": 100}}
    runs = [GridRun(architecture, estimator, 0, ()) for architecture, estimator in names[:count]]
    return [RunStatus(run, config, tmp_path / str(number), None, steps_done) for number, run in enumerate(runs)]


def test_building_what_a_config_describes_leaves_it_as_it_was(tmp_path: Path) -> None:
    for run in plan(budget_file("smoke"), 1, tmp_path)[-2:]:
        config = status_of(run).config
        before = copy.deepcopy(config)
        build(config)
        assert config == before


def test_a_run_that_is_continued_has_as_many_threads_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of however many runs are left: the number of threads is in the rounding."""
    threads = []

    def run_all(waiting: list[RunStatus], jobs: int, *rest: object) -> None:
        threads.append((len(waiting), local.threads_per_job(jobs)))

    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(local, "run_all", run_all)
    monkeypatch.setattr(local, "cores", lambda: 8)
    monkeypatch.setattr(local, "BYTES_PER_JOB", 1)
    monkeypatch.setattr(reproduce, "_costs", lambda *_: {})
    runs = [
        RunStatus(run, {"trainer": {"max_steps": 1}}, tmp_path, None, 0)
        for run in plan(budget_file("smoke"), 1, tmp_path)
    ]
    left = [*(replace(status, result=RESULT) for status in runs[:7]), runs[7]]
    for status in (runs, left):
        reproduce._train(status, status, parse_options([]), 0, 1.0)
    assert threads == [(8, 1), (1, 1)]


def test_time_left_is_the_sum_over_runs_divided_by_jobs_but_no_less_than_the_longest() -> None:
    assert left_together([10.0, 20.0, 30.0], 1) == 60.0
    assert left_together([10.0, 20.0, 30.0], 2) == 30.0
    assert left_together([1.0, 1.0, 30.0], 3) == 30.0
    assert left_together([], 1) == 0.0


def test_a_continued_run_costs_only_what_is_left() -> None:
    cost = Cost(start=5.0, step=0.1, rest=10.0, steps=100)
    assert cost.total() == 25.0
    assert cost.total(50) == 15.0
    assert cost.left(100) == 0.0


def test_runs_that_took_twice_their_prediction_double_the_rest(tmp_path: Path) -> None:
    two = waiting(tmp_path, 2)
    display = GridDisplay(2, 0, two, {each.run: Cost(10.0, 0.1, 0.0, 100) for each in two}, 1, io.StringIO())
    assert display.seconds_left() == pytest.approx(40.0)
    two[0].folder.mkdir()
    (two[0].folder / "result.json").write_text(json.dumps(RESULT))
    display.update([], [Ended(two[0], 40.0, "")])
    assert display.seconds_left() == pytest.approx(40.0)


def test_a_failed_run_is_told_at_once_and_remembered(tmp_path: Path) -> None:
    (one,) = waiting(tmp_path, 1)
    out = io.StringIO()
    display = GridDisplay(1, 0, [one], {}, 1, out)
    assert display.seconds_left() is None
    display.update([], [Ended(one, 1.0, "the disk is full")])
    assert out.getvalue() == "SBN(200-200) lr seed 0 failed: the disk is full\n"
    assert display.problems == {one.run: "the disk is full"}


@pytest.mark.parametrize(
    ("seconds", "text"), [(40.2, "40 s"), (720.0, "12 min"), (12_600.0, "3.5 h"), (354_240.0, "4.1 days")]
)
def test_durations_are_round(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("budget", "folder"), [("standard", ""), ("smoke", "smoke"), ("quick", "quick"), ("converged", "converged")]
)
def test_only_the_published_budget_writes_over_the_published_table(budget: str, folder: str) -> None:
    assert parse_options(["--budget", budget]).results == RESULTS / folder
