"""Publishing: from a user's own results to those that everybody sees."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
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
from releg.files import write_json
from releg.records.csv_formats import METRICS_COLUMNS
from releg.records.file_names import METRICS, PAPER
from releg.report.curves import MEASURED_RUN, measurement_file
from releg.weights import load_weights
from tests.lightning_modules.run_states import RESULT, leave_finished, save_best
from tests.releg.helpers import random_model


def train(results: Path, runs: Sequence[tuple[str, int]], bound: float, *more: str) -> None:
    """Leave behind what runs of SBN(200-200) would, by estimator and seed."""
    results.mkdir(exist_ok=True)
    shutil.copy(RESULTS / PAPER, results)
    found: list[RunStatus] = []
    for run in plan(budget_file("smoke"), 2, results, ("200-200", "")):
        if (run.estimator, run.seed) in runs:
            run = replace(run, arguments=(*run.arguments, *more))
            status = status_of(run)
            leave_finished(status)
            write_result(status.folder, RESULT | {"test/elbo": bound, "val/elbo": bound})
            (status.folder / METRICS).write_text(f"{','.join(METRICS_COLUMNS)}\n200,1.0,val/elbo,{bound}\n")
            save_best(status.folder, random_model(784, status.config["model"]["layers"]))
            found.append(status_of(run))
    write_record(results, found, {})


def bounds(results: Path) -> list[tuple[str, int, float]]:
    return [(entry.estimator, entry.seed, entry.result["test/elbo"]) for entry in recorded(results)]


def test_new_runs_take_the_place_of_published_ones_and_other_cells_stay(tmp_path: Path) -> None:
    first, second, published = tmp_path / "first", tmp_path / "second", tmp_path / "published"
    train(first, [("lr", 0), ("crn", 0)], -100.0)
    published.mkdir()
    publish(first, published, with_weights=True)
    assert bounds(published) == [("lr", 0, -100.0), ("crn", 0, -100.0)]
    train(second, [("crn", 0)], -99.0)
    shutil.rmtree(first)  # as in a fresh clone
    publish(second, published, with_weights=True)
    assert bounds(published) == [("lr", 0, -100.0), ("crn", 0, -99.0)]
    assert "| 200-200 | CRN | 99.00 |" in (published / "table1.md").read_text()
    assert len(list(published.glob("weights/*/*.safetensors"))) == 2
    assert not list(published.rglob("*.ckpt"))
    assert bounds(second) == [("crn", 0, -99.0)]


def test_a_cell_is_a_mean_over_seeds_of_the_same_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A new recipe, published seed by seed, takes out the seeds of the old one; of other cells it does not."""
    old, mine, published = tmp_path / "old", tmp_path / "mine", tmp_path / "published"
    train(old, [("lr", 0), ("lr", 1), ("crn", 0), ("crn", 1)], -99.0)
    published.mkdir()
    publish(old, published, with_weights=True)
    shutil.rmtree(old)
    by_lr = [("lr", 0, -99.0), ("lr", 1, -99.0)]
    for seed, of_crn in ((0, [-100.0]), (1, [-100.0, -100.0])):
        train(mine, [("crn", seed)], -100.0, "--model.optimizer.init_args.lr", "0.01")
        publish(mine, published, with_weights=True)
        seeds = list(enumerate(of_crn))
        assert sorted(bounds(published)) == sorted([*by_lr, *(("crn", seed, bound) for seed, bound in seeds)])
        curves = [path.parent.name for path in sorted((published / "curves").glob("200-200/crn/*/*"))]
        assert curves == [f"seed{number}" for number, _ in seeds]
        says = load_weights(published / "weights" / "200-200" / "crn.safetensors")[1]
        assert (says["val/elbo"], json.loads(says["settings"])["model.optimizer.init_args.lr"]) == ("-100.0", 0.01)
    assert capsys.readouterr().err.splitlines() == ["SBN(200-200) crn seed 1 had other settings: removed"]


def test_figure_1s_measurement_is_published_with_its_run_and_leaves_with_it(tmp_path: Path) -> None:
    mine, published = tmp_path / "mine", tmp_path / "published"
    train(mine, [("lr", 0)], -100.0)
    published.mkdir()
    own, theirs = (measurement_file(folder, "lr") for folder in (mine, published))
    own.parent.mkdir()
    own.write_text("step\n")
    write_json(own.with_suffix(".json"), {"commit": "beef"})  # not finished yet
    publish(mine, published, with_weights=False)
    assert not theirs.exists()
    write_json(own.with_suffix(".json"), {MEASURED_RUN: recorded(mine)[0].trained})
    publish(mine, published, with_weights=False)
    assert theirs.read_text() == "step\n"
    train(mine, [("lr", 0)], -99.0, "--model.optimizer.init_args.lr", "0.01")
    publish(mine, published, with_weights=False)
    assert list(theirs.parent.iterdir()) == []


def test_the_curves_of_published_runs_are_small_event_files(tmp_path: Path) -> None:
    mine, published = tmp_path / "mine", tmp_path / "published"
    train(mine, [("lr", 0)], -100.0)
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
        train(tmp_path / "mine" / budget, [("lr", 0)], -100.0)
        assert main([budget]) == 0
        assert (tmp_path / budget / "weights").is_dir() == (budget == "converged")
        assert bounds(tmp_path / budget) == [("lr", 0, -100.0)]
    publish(tmp_path / "mine" / "quick", tmp_path, with_weights=False)
    (tmp_path / "table1.md").unlink()
    assert main(["converged"]) == 0
    assert "## Trained for longer" in (tmp_path / "table1.md").read_text(), "with the new rows"


def test_without_a_finished_run_nothing_is_published(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"there is no finished run in .*, expected those that bash reproduce\.sh"):
        publish(tmp_path / "mine", tmp_path, with_weights=True)
