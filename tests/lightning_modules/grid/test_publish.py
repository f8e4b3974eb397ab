"""Publishing: from a user's own results to those that everybody sees."""

import shutil
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lightning_modules import RESULTS
from lightning_modules.grid import publish as module
from lightning_modules.grid.event_files import MOST_POINTS
from lightning_modules.grid.options import budget_file
from lightning_modules.grid.plan import RunStatus, plan, status_of
from lightning_modules.grid.publish import main, publish
from lightning_modules.grid.record import recorded, write_record
from lightning_modules.run.result import write_result
from releg.records.csv_formats import METRICS_COLUMNS
from releg.records.file_names import METRICS, PAPER
from tests.lightning_modules.run_states import RESULT, leave_finished, save_best
from tests.releg.helpers import random_model


def train(results: Path, cells: slice, bound: float) -> None:
    """Leave behind what the runs of these cells would."""
    results.mkdir(exist_ok=True)
    shutil.copy(RESULTS / PAPER, results)
    found: list[RunStatus] = []
    for run in plan(budget_file("smoke"), 1, results)[cells]:
        status = status_of(run)
        leave_finished(status)
        write_result(status.folder, RESULT | {"test/elbo": bound, "val/elbo": bound})
        save_best(status.folder, random_model(784, status.config["model"]["layers"]))
        (status.folder / "last.ckpt").touch()
        found.append(status_of(run))
    write_record(results, found, {})


def bounds(results: Path) -> list[tuple[str, float]]:
    return [(entry.estimator, entry.result["test/elbo"]) for entry in recorded(results)]


def test_new_runs_take_the_place_of_published_ones_and_other_cells_stay(tmp_path: Path) -> None:
    first, second, published = tmp_path / "first", tmp_path / "second", tmp_path / "published"
    train(first, slice(0, 2), -100.0)
    published.mkdir()
    publish(first, published, with_weights=True)
    assert bounds(published) == [("lr", -100.0), ("crn", -100.0)]
    train(second, slice(1, 2), -99.0)
    shutil.rmtree(published / "runs")  # as in a fresh clone
    publish(second, published, with_weights=True)
    assert bounds(published) == [("lr", -100.0), ("crn", -99.0)]
    assert "| 200-200 | CRN | 99.00 |" in (published / "table1.md").read_text()
    assert len(list(published.glob("weights/*/*.safetensors"))) == 2
    assert not list(published.rglob("last.ckpt"))
    assert bounds(second) == [("crn", -99.0)]


def test_the_curves_of_published_runs_are_small_event_files(tmp_path: Path) -> None:
    mine, published = tmp_path / "mine", tmp_path / "published"
    train(mine, slice(0, 1), -100.0)
    (entry,) = recorded(mine)
    rows = [f"{step},{step / 10},val/elbo,{-step}" for step in range(1, 1001)]
    (entry.folder / METRICS).write_text("\n".join([",".join(METRICS_COLUMNS), *rows, "1000,100.0,test/elbo,-99.5"]))
    published.mkdir()
    publish(mine, published, with_weights=False)
    (path,) = published.glob("curves/*/*/*/*")
    assert path.relative_to(published / "curves").parts[:-1] == ("200-200", "lr", "seed0")
    shown = EventAccumulator(str(path)).Reload()
    assert [(point.step, point.value) for point in shown.Scalars("test/elbo")] == [(1000, -99.5)]
    curve = [(point.wall_time, point.step, point.value) for point in shown.Scalars("val/elbo")]
    assert len(curve) == MOST_POINTS
    assert (curve[0], curve[-1]) == ((0.1, 1, -1), (100, 1000, -1000))


def test_only_long_budgets_have_published_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OWN_RESULTS", tmp_path / "mine")
    monkeypatch.setattr(module, "RESULTS", tmp_path)
    for budget in ("quick", "converged"):
        (tmp_path / "mine").mkdir(exist_ok=True)
        train(tmp_path / "mine" / budget, slice(0, 1), -100.0)
        assert main([budget]) == 0
        assert (tmp_path / budget / "weights").is_dir() == (budget == "converged")
        assert bounds(tmp_path / budget) == [("lr", -100.0)]


def test_without_a_finished_run_nothing_is_published(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"there is no finished run in .*, expected those that bash reproduce\.sh"):
        publish(tmp_path / "mine", tmp_path, with_weights=True)
