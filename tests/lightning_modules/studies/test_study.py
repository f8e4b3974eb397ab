"""Runs of a study: made once, in real processes."""

from pathlib import Path

import pytest

from lightning_modules import CONFIGS
from lightning_modules.grid.plan import GridRun
from lightning_modules.grid.process import LOG
from lightning_modules.run.lock import locked
from lightning_modules.studies.study import StudyError, failed, make_missing, options_of, recorded
from releg.records.file_names import RESULT


def tiny(results: Path, *more: str) -> GridRun:
    words = ["--config", str(CONFIGS / "base.yaml"), "--config", str(CONFIGS / "estimator" / "likelihood_ratio.yaml")]
    words += ["--model.layers", "[4,3]", "--trainer.max_steps", "20", "--trainer.val_check_interval", "10"]
    words += ["--model.test_samples", "1", "--results_dir", str(results), *more]
    return GridRun("3-4", "lr", 0, tuple(words))


@pytest.mark.long
def test_a_study_makes_what_is_missing_and_nothing_twice(tmp_path: Path) -> None:
    runs = [tiny(tmp_path), tiny(tmp_path, "--model.optimizer.init_args.lr", "0.01")]  # of the same net
    with locked(tmp_path) as lock:
        made = make_missing(runs, "trials", 2, lock, 5.0)
        written = [(each.folder / RESULT).stat().st_mtime_ns for each in made]
        again = make_missing(runs, "trials", 2, lock, 5.0)
    first, second = (each.result for each in made)
    assert first is not None
    assert second is not None
    assert first["val/elbo"] != second["val/elbo"]
    assert all((each.folder / LOG).is_file() for each in made), "each was followed in its own folder"
    assert [each.result for each in again] == [first, second]
    assert [(each.folder / RESULT).stat().st_mtime_ns for each in again] == written


@pytest.mark.long
def test_a_run_that_fails_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    wrong = tiny(tmp_path, "--trainer.accelerator", "cuda")  # there is none
    with locked(tmp_path) as lock, pytest.raises(StudyError, match=r"SBN\(3-4\) lr seed 0 failed: ") as error:
        make_missing([wrong], "trials", 1, lock, 5.0)
    capfd.readouterr()
    assert failed("trials", error.value) == 1
    assert capfd.readouterr().err.startswith("trials: SBN(3-4) lr seed 0 failed: ")


def test_every_study_takes_jobs_and_results(tmp_path: Path) -> None:
    options = options_of("study", None, ["--jobs", "3", "--results", str(tmp_path)])
    assert (options.jobs, options.results) == (3, tmp_path)
    with pytest.raises(SystemExit):
        options_of("study", None, ["--jobs", "0"])


def test_what_a_study_has_recorded_is_read_by_key(tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text('[{"name": "a", "bound": 1.0}, {"name": "b", "bound": 2.0}]')
    known = recorded(tmp_path / "study.json", lambda each: each["name"])
    assert {name: entry["bound"] for name, entry in known.items()} == {"a": 1.0, "b": 2.0}
    assert recorded(tmp_path / "not_yet.json", lambda each: each["name"]) == {}


def test_records_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text('[{"bound": 1.0}]')
    with pytest.raises(ValueError, match=r"study.json cannot be read .*; restore it, or delete it"):
        recorded(tmp_path / "study.json", lambda each: each["name"])
