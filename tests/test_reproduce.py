"""reproduce.sh itself, on the real data: a budget of seconds in place of the shipped ones."""

import os
import resource
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.environment import ROOT
from tests.processes import children_of
from tests.reproduce_script import CRN, Script, curve, finish, is_free, rows, wait_for, without_times

WRITTEN = "figure1.csv figure1_variances.csv figure1.pdf figure1.png runs.json table1.json table1.md"


def test_one_command_ends_with_table_and_figure(undisturbed: tuple[Path, str, str]) -> None:
    results, out, err = undisturbed
    assert all((results / name).stat().st_size > 0 for name in WRITTEN.split())
    assert (results / "figure1.png").read_bytes().startswith(b"\x89PNG")
    assert [(row["architecture"], row["estimator"]) for row in rows(results)] == [
        ("32-64-128-256", "lr"),
        ("32-64-128-256", "crn"),
    ]
    assert all(row["steps"] == 30 and row["seeds"] == [0] and 100 < row["test_nll_mean"] < 300 for row in rows(results))
    assert "| 32-64-128-256 | CRN | " in out
    assert out.endswith(f"Table 1: {results / 'table1.md'}\nFigure 1: {results / 'figure1.png'}\n")
    assert "about" in err
    assert "at this machine's pace" in err


def test_both_estimators_are_measured_at_the_weights_of_the_lr_run(undisturbed: tuple[Path, str, str]) -> None:
    text = (undisturbed[0] / "figure1_variances.csv").read_text()
    assert "\nlr,0,30,lr,1,within," in text
    assert "\nlr,0,30,crn,1,within," in text
    assert "\ncrn,0,1,crn,1,within," in text


@pytest.mark.long
def test_interrupted_half_way_it_ends_with_the_same_numbers(
    script: Script, undisturbed: tuple[Path, str, str], tmp_path: Path
) -> None:
    """Killed it does, too: test_faults does that."""
    crn = tmp_path / "runs" / "32-64-128-256" / "common_random_numbers" / "seed0"

    process = script.tiny(tmp_path, *CRN)
    wait_for((crn / "last.ckpt").is_file, process)
    trainers = [child.pid for child in children_of(process.pid)]
    for trainer in trainers:
        os.kill(trainer, signal.SIGSTOP)  # so that the run cannot end while a second one is tried
    code, _, err = finish(script.tiny(tmp_path, *CRN))
    assert code == 2
    assert err.startswith(f"reproduce.sh: another reproduce.sh is working in {tmp_path}")
    process.send_signal(signal.SIGINT)
    for trainer in trainers:
        os.kill(trainer, signal.SIGCONT)
    code, _, err = finish(process)
    assert code == 130, err
    assert err.splitlines()[-1].startswith("reproduce.sh: interrupted; the same command continues from the last")
    assert is_free(tmp_path)

    (crn / "result.json").unlink(missing_ok=True)
    code, _, err = finish(script.tiny(tmp_path, *CRN))
    assert code == 0, err
    assert "continuing" in (crn / "log.txt").read_text()
    assert without_times(tmp_path) == [row for row in without_times(undisturbed[0]) if row["estimator"] == "crn"]
    assert curve(tmp_path, "crn") == curve(undisturbed[0], "crn") != []


@pytest.mark.long
def test_failing_runs_are_named_and_what_was_finished_stays(
    script: Script, undisturbed: tuple[Path, str, str], tmp_path: Path
) -> None:
    results = tmp_path / "results"
    shutil.copytree(undisturbed[0], results)
    damaged = results / "runs" / "200-200" / "likelihood_ratio" / "seed0" / "config.yaml"
    damaged.parent.mkdir(parents=True)
    damaged.write_text("model: [garbage")
    finished = {path: path.read_bytes() for path in results.glob("runs/*/*/*/result.json")}

    def small_disk() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, 2_000_000))  # less than a checkpoint

    code, _, err = finish(script.tiny(results, "--only", "200-200", limit=small_disk))
    assert code == 1
    assert "Traceback" not in err
    lines = [line for line in err.splitlines() if line.startswith("reproduce.sh: ")]
    assert len(lines) == 2
    assert lines[0].startswith("reproduce.sh: SBN(200-200) lr seed 0 failed: ")
    assert f"{damaged} is damaged" in lines[0]
    assert lines[1].startswith("reproduce.sh: SBN(200-200) crn seed 0 failed: cannot use ")
    assert damaged.read_text() == "model: [garbage"
    assert {path: path.read_bytes() for path in results.glob("runs/*/*/*/result.json")} == finished
    assert without_times(results) == without_times(undisturbed[0])


@pytest.mark.long
def test_verify_trains_nothing_and_takes_paths_relative_to_where_it_is_called(script: Script, tmp_path: Path) -> None:
    damaged = tmp_path / "weights" / "200-200" / "lr.safetensors"
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(b"no weights")
    shutil.copy(ROOT / "results" / "paper.json", tmp_path)
    (tmp_path / "table1.json").write_text("[]")
    (tmp_path / "runs.json").write_text('{"runs": []}')
    code, _, err = finish(script.start("--verify", "--results", os.path.relpath(tmp_path, script.folder)))
    assert code == 1, err
    assert "releg verify: SBN(200-200) lr: " in err
    assert not (tmp_path / "runs").exists()


@pytest.fixture
def terminate() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("terminate")
@pytest.mark.parametrize("text", ["trainer: {max_stepz: 3}", "trainer: [", "- 1", "model: {layers: many}"])
def test_a_budget_file_that_cannot_be_read_is_told_in_one_sentence(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from lightning_modules.grid.__main__ import main

    (tmp_path / "bad.yaml").write_text(text)
    assert main(["--budget", str(tmp_path / "bad.yaml"), "--results", str(tmp_path / "results")]) == 2
    err = capsys.readouterr().err.splitlines()
    assert err[-1].startswith("reproduce.sh: the settings of SBN(200-200) crn seed 0 cannot be read: ")
    assert len(err) == 2  # "preparing ..." is the other
