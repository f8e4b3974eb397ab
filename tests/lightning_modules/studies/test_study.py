"""Runs of a study: made once, in real processes."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from lightning_modules import CONFIGS
from lightning_modules.grid.plan import GridRun, RunStatus
from lightning_modules.grid.process import LOG
from lightning_modules.run.lock import locked
from lightning_modules.studies import study as module
from lightning_modules.studies.study import UNFINISHED, Numbers, Study, make_missing, options_of
from releg.records.file_names import METRICS, RESULT


def tiny(results: Path, *more: str) -> GridRun:
    words = ["--config", str(CONFIGS / "base.yaml"), "--config", str(CONFIGS / "estimator" / "likelihood_ratio.yaml")]
    words += ["--model.layers", "[4,3]", "--trainer.max_steps", "20", "--trainer.val_check_interval", "10"]
    words += ["--model.test_samples", "1", "--results_dir", str(results), *more]
    return GridRun("3-4", "lr", 0, tuple(words))


class Trial(NamedTuple):
    rate: float

    def run(self, folder: Path) -> GridRun:
        return tiny(folder, "--model.optimizer.init_args.lr", str(self.rate))


def bound(status: RunStatus) -> Numbers:
    assert status.result is not None
    assert (status.folder / LOG).is_file(), "each was followed in its own folder"
    return {"bound": status.result["val/elbo"]}


@pytest.mark.long
def test_a_study_makes_what_is_not_recorded_in_turn_and_writes_its_page_after_each_run(tmp_path: Path) -> None:
    file, recorded_at = tmp_path / "mine" / "trials.json", list[int]()

    def in_turn(recorded: Sequence[Numbers]) -> list[Trial]:
        """The second is planned when the first is trained; both are of the same net."""
        return [Trial(0.001), Trial(0.01)][: 1 + len(recorded)]

    def write_page(results: Path) -> None:
        assert results == tmp_path
        recorded_at.append(len(json.loads(file.read_text())))

    study = Study(None, "mine/trials.json", Trial._fields, in_turn, bound, write_page, threads=1)
    assert study.main(["--results", str(tmp_path)]) == 0
    entries = json.loads(file.read_text())
    assert [entry["rate"] for entry in entries] == [0.001, 0.01]
    assert entries[0]["bound"] != entries[1]["bound"]
    assert (sorted({*recorded_at}), sorted(recorded_at)) == ([1, 2], recorded_at)
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob(RESULT)}
    file.write_text(json.dumps([entries[0], {"rate": 0.1, "bound": -3.0}]))  # the last was made elsewhere
    assert study.main(["--results", str(tmp_path)]) == 0
    assert json.loads(file.read_text()) == [entries[0], {"rate": 0.1, "bound": -3.0}, entries[1]]
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob(RESULT)} == written


def under_way(status: RunStatus) -> Numbers:
    return {"steps_done": status.steps_done, UNFINISHED: status.result is None}


def test_a_run_under_way_is_published_as_unfinished_and_is_still_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = Study(None, "t.json", Trial._fields, lambda _: [Trial(0.3)], under_way, print, shows_unfinished=True)
    monkeypatch.setattr(module, "RESULTS", tmp_path)
    begun = module._placed(Trial(0.3).run(tmp_path / "mine"))
    (begun.folder / METRICS).write_text("step,seconds,metric,value\n10,1.0,val/elbo,-5.0\n")
    assert study.main(["--publish", "--results", str(tmp_path / "mine")]) == 0
    assert json.loads((tmp_path / "t.json").read_text()) == [{"rate": 0.3, "steps_done": 10, UNFINISHED: True}]
    recorded = study.recorded(tmp_path / "t.json")
    assert [*study._missing(recorded, tmp_path)] == [Trial(0.3)]


def test_publishing_adds_what_is_recorded_and_makes_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = list[Path]()
    study = Study(None, "trials.json", Trial._fields, lambda _: [Trial(0.3)], bound, pages.append)
    monkeypatch.setattr(module, "RESULTS", tmp_path)
    (tmp_path / "trials.json").write_text('[{"rate": 0.1, "bound": 1.0, "old": 3}, {"rate": 0.2, "bound": 2.0}]')
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "trials.json").write_text('[{"rate": 0.2, "bound": 4.0}, {"rate": 0.4, "bound": 5.0}]')
    assert study.main(["--publish", "--results", str(tmp_path / "mine")]) == 0
    entries = json.loads((tmp_path / "trials.json").read_text())
    assert [(entry["rate"], entry["bound"]) for entry in entries] == [(0.1, 1.0), (0.2, 4.0), (0.4, 5.0)]
    assert pages == [tmp_path]


@pytest.mark.long
def test_a_run_that_fails_is_named(tmp_path: Path) -> None:
    wrong = tiny(tmp_path, "--trainer.accelerator", "cuda")  # there is none
    with locked(tmp_path) as lock, pytest.raises(SystemExit, match=r"SBN\(3-4\) lr seed 0 failed: "):
        make_missing([wrong], 1, lock)


def test_every_study_takes_jobs_and_results(tmp_path: Path) -> None:
    options = options_of(None, ["--jobs", "3", "--results", str(tmp_path)])
    assert (options.jobs, options.results) == (3, tmp_path)
    with pytest.raises(SystemExit):
        options_of(None, ["--jobs", "0"])


def test_records_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text('[{"bound": 1.0}]')
    study = Study(None, "study.json", Trial._fields, lambda _: [], bound, print)
    with pytest.raises(ValueError, match=r"study.json cannot be read .*; restore it, or delete it"):
        study.recorded(tmp_path / "study.json")
    assert study.recorded(tmp_path / "not_yet.json") == {}
