"""runs.json and extended_runs.json: what they say of how the runs were made."""

import json
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lightning_modules import CONFIGS, RESULTS
from lightning_modules.grid.__main__ import main
from lightning_modules.grid.manifest import check_manifests, kept, write_manifests
from lightning_modules.grid.plan import GridRun, RunStatus, plan, plan_extended, status_of
from lightning_modules.run.folder import save_config
from lightning_modules.run.provenance import PROVENANCE
from lightning_modules.run.result import write_result
from releg.records.file_names import EXTENDED_RUNS, MEASUREMENTS, RUNS
from tests.lightning_modules.run_states import RESULT

SMOKE = CONFIGS / "budget" / "smoke.yaml"


def finish(run: GridRun, results: Path, processes: int = 1) -> RunStatus:
    """As the run would leave its folder."""
    status = status_of(run)
    save_config(status.folder, status.config)
    write_result(status.folder, RESULT)
    (status.folder / PROVENANCE).write_text(json.dumps([{"cores": 2}] * processes))
    return status_of(run)


@pytest.fixture(scope="module")
def lr_and_crn(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[RunStatus]]:
    results = tmp_path_factory.mktemp("results")
    return results, [finish(run, results) for run in plan(SMOKE, 1, results)[:2]]


def read(results: Path, name: str = RUNS) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((results / name).read_text())
    return content


def test_the_time_of_a_command_stands_there_only_if_it_made_all_runs(lr_and_crn: tuple[Path, list[RunStatus]]) -> None:
    results, finished = lr_and_crn
    runs = [status.run for status in finished]
    write_manifests(results, "first", finished, {}, runs, 100.0)
    assert (read(results)["command"], read(results)["seconds"]) == ("first", 100.0)
    write_manifests(results, "only looks", finished, {}, [], 3.0)
    assert (read(results)["command"], read(results)["seconds"]) == ("first", 100.0)
    write_manifests(results, "second", finished, {}, runs[1:], 50.0)
    assert (read(results)["command"], read(results)["seconds"]) == ("second", None)


def test_a_command_that_made_none_of_the_runs_is_not_named_as_the_one_that_did(
    tmp_path: Path,
) -> None:
    lr, crn = [finish(run, tmp_path) for run in plan(SMOKE, 1, tmp_path)[:2]]
    write_manifests(tmp_path, "only looks", [lr], {}, [], 3.0)
    assert (read(tmp_path)["command"], read(tmp_path)["seconds"]) == (None, None)
    write_manifests(tmp_path, "trains", [lr], {}, [lr.run], 100.0)
    write_manifests(tmp_path, "looks at one more", [lr, crn], {}, [], 3.0)
    assert (read(tmp_path)["command"], read(tmp_path)["seconds"]) == ("trains", None)


def test_the_time_of_a_command_that_continued_a_run_is_not_that_of_the_run(tmp_path: Path) -> None:
    (run, *_) = plan(SMOKE, 1, tmp_path)
    write_manifests(tmp_path, "continues", [finish(run, tmp_path, processes=2)], {}, [run], 100.0)
    assert read(tmp_path)["seconds"] is None


def test_runs_that_were_trained_elsewhere_are_kept_with_what_was_recorded(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    (lr, *_) = plan(SMOKE, 1, there)
    write_manifests(there, "trained", [finish(lr, there)], {}, [lr], 10.0)
    here.mkdir()
    found = [status_of(run) for run in plan(SMOKE, 1, here)[:2]]
    assert [status.result for status in found] == [None, None]
    (here / RUNS).write_text(re.sub(r',\s*"digest": "\w+"', "", (there / RUNS).read_text()))  # by an earlier version
    assert read(here) != read(there)
    same, other = kept(here, found)
    assert (same.result, other.result) == (RESULT, None)
    write_manifests(here, "looks", [same], {}, [], 1.0)
    assert read(here)["runs"] == read(there)["runs"]
    (longer, *_) = plan(SMOKE.with_name("quick.yaml"), 1, here)
    assert kept(here, [status_of(longer)])[0].result is None  # other settings are another run


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (
            lambda text: text.replace('"test/elbo": -100.0', '"test/elbo": -99.0'),
            "as it was written, expected an entry",
        ),
        (lambda text: text.replace('"model.val_samples": ', '"model.val_samples": 1'), "as it was written, expected"),
        (lambda text: text[:1000], "is damaged, expected a list of runs"),
        (lambda text: '{"runs": [7]}', "is damaged, expected a list of runs"),
    ],
    ids=["a number", "a setting", "cut", "no run"],
)
def test_a_manifest_that_is_not_as_it_was_written_is_not_believed(
    damage: Callable[[str], str], said: str, tmp_path: Path
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    (lr, *_) = plan(SMOKE, 1, there)
    write_manifests(there, "trained", [finish(lr, there)], {}, [lr], 10.0)
    here.mkdir()
    whole = (there / RUNS).read_text()
    assert damage(whole) != whole
    (here / RUNS).write_text(damage(whole))
    with pytest.raises(ValueError, match=said):
        kept(here, [status_of(run) for run in plan(SMOKE, 1, here)[:1]])
    with pytest.raises(ValueError, match=said):
        check_manifests(here)


def test_runs_of_the_second_table_are_kept_too(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    (run, *_) = plan_extended(SMOKE, 1, there)
    write_manifests(there, "trained", [finish(run, there)], {}, [run], 10.0)
    here.mkdir()
    (same, *_) = [status_of(run) for run in plan_extended(SMOKE, 1, here)]
    (here / EXTENDED_RUNS).write_bytes((there / EXTENDED_RUNS).read_bytes())
    assert kept(here, [same])[0].result == RESULT


def test_published_manifests_are_as_they_were_written() -> None:
    for path in RESULTS.rglob(RUNS):
        assert kept(path.parent, []) == []


def test_a_report_trains_nothing_and_shows_what_is_finished(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signal, "signal", lambda *handler: None)  # that of the tests stays
    (lr, *_) = plan(SMOKE, 1, tmp_path)
    finish(lr, tmp_path)
    assert main(["--budget", "smoke", "--report", "--results", str(tmp_path)]) == 0
    shown = capsys.readouterr()
    assert "0 runs to train, 1 already finished" in shown.err
    assert "| 200-200 | LR | 100.00 |" in shown.out
    assert read(tmp_path)["missing"]["SBN(200-200) crn seed 0"] == "not trained yet"
    assert [path.name for path in (tmp_path / "runs").rglob("seed*")] == ["seed0"]


def test_what_was_trained_elsewhere_stays_in_the_tables_until_it_is_trained_here(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    write_manifests(there, "trained", [finish(run, there) for run in plan(SMOKE, 2, there)[:3]], {}, [], 10.0)
    here.mkdir()
    (here / RUNS).write_bytes((there / RUNS).read_bytes())
    lr, crn, *_ = runs = plan(SMOKE, 1, here)
    absent = dict.fromkeys(runs, "not trained yet")
    write_manifests(here, "looks", [], absent, [], 1.0)
    assert read(here)["runs"] == read(there)["runs"]
    assert str(lr) not in read(here)["missing"]
    mine = finish(lr, here, processes=3)
    del absent[lr]
    write_manifests(here, "trains", [mine], {**absent, crn: "it failed"}, [lr, crn], 1.0)
    entries = read(here)["runs"]
    assert [len(entry["provenance"]) for entry in entries] == [3, 1]
    assert (entries[1], read(here)["missing"][str(crn)]) == (read(there)["runs"][2], "it failed")
    assert read(here)["seconds"] is None


def test_entries_are_in_the_order_of_the_table_whatever_run_ended_first(tmp_path: Path) -> None:
    runs = [*plan(SMOKE, 2, tmp_path), *plan_extended(SMOKE, 1, tmp_path)[:2]]
    finished = [finish(run, tmp_path) for run in runs]
    for count in (3, 7, len(finished)):
        write_manifests(tmp_path, "trains", finished[-count:], {}, [], 1.0)
    folders = [tmp_path / entry["folder"] for entry in read(tmp_path)["runs"]]
    assert folders == [status.folder for status in finished[:-2]]
    second = [entry["estimator"] for entry in read(tmp_path, EXTENDED_RUNS)["runs"]]
    assert second == ["lr", "crn", "lr", "crn", *(run.estimator for run in runs[-2:])]


def test_a_report_in_a_fresh_clone_changes_no_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "signal", lambda *handler: None)
    kept = (RUNS, "table1.json", "figure1.csv", "figure1_variances.csv", "paper.json", "variance.md")
    shutil.copytree(RESULTS / MEASUREMENTS, tmp_path / MEASUREMENTS)
    for name in kept:
        shutil.copy(RESULTS / name, tmp_path)
    assert main(["--budget", "standard", "--report", "--results", str(tmp_path)]) == 0
    for name in kept:
        assert (tmp_path / name).read_bytes() == (RESULTS / name).read_bytes(), name


def test_the_second_table_keeps_its_own_lr_and_crn(lr_and_crn: tuple[Path, list[RunStatus]]) -> None:
    results, finished = lr_and_crn
    others = plan_extended(SMOKE, 1, results)
    arm = next(finish(run, results) for run in others if run.estimator == "arm")
    missing = {run: "not trained yet" for run in others if run.estimator == "vimco"}
    write_manifests(results, "extended", [*finished, arm], missing, [arm.run], 100.0)
    assert [run["estimator"] for run in read(results, EXTENDED_RUNS)["runs"]] == ["lr", "crn", "arm"]
    assert read(results)["missing"] == {}
    before = read(results, EXTENDED_RUNS)
    write_manifests(results, "another grid", [], {}, [], 1.0)  # of another length, say
    assert read(results, EXTENDED_RUNS) == before
