"""What the world does to a run: killed, damaged, out of space, doubled, moved. The numbers stay the same.

A short schedule by default; `--faults=full` is the long one. The counts are printed at the end.
"""

import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lightning_modules import cli
from tests.lightning_modules import commands_helper
from tests.lightning_modules.commands_helper import ENVIRONMENT, ROOT, folder_of, releg_command, trained
from tests.lightning_modules.run_states import assert_identical, curve, final_state, result, wait_for_new_checkpoint
from tests.processes import children_of
from tests.reproduce_script import CRN, Script, finish, wait_for, without_times
from tests.reproduce_script import curve as figure

pytestmark = pytest.mark.long

LONGER = ["--trainer.max_steps", "200", "--trainer.val_check_interval", "10", "--model.val_samples", "1"]
LONGER += ["--config", "schedule/linear.yaml"]


def check(folder: Path, reference: Path, metrics: bool = True) -> None:
    """The run ended as the undisturbed one did."""
    assert_identical(final_state(reference), final_state(folder))
    assert result(folder) == result(reference)
    assert not metrics or curve(folder) == curve(reference)


def fit(results: Path, *arguments: str) -> list[str]:
    return commands_helper.fit(results, *LONGER, *arguments)


def start(results: Path, *arguments: str) -> "subprocess.Popen[str]":
    command = releg_command(*fit(results, *arguments))
    return subprocess.Popen(command, cwd=ROOT, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)


def ended(process: "subprocess.Popen[str]") -> int:
    """The exit code of a process that said nothing of a traceback."""
    assert "Traceback" not in process.communicate()[1]
    return process.returncode


@pytest.fixture(autouse=True)
def _no_traceback(capsys: pytest.CaptureFixture[str]) -> Iterator[None]:
    """Nor is there one in what a command within this process said."""
    yield
    assert "Traceback" not in capsys.readouterr().err


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that nothing happened to."""
    return trained(tmp_path_factory.mktemp("reference"), *LONGER)


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of the same run, killed between two checkpoints after the third."""
    results = tmp_path_factory.mktemp("interrupted")
    process = start(results)
    for _ in range(3):
        wait_for_new_checkpoint(folder_of(results), process)
    process.kill()
    assert ended(process) == -signal.SIGKILL
    assert not (folder_of(results) / "result.json").exists()
    return results


@pytest.fixture
def copy(interrupted: Path, tmp_path: Path) -> Path:
    """A results folder copied to another place, to be continued there."""
    return Path(shutil.copytree(interrupted, tmp_path / "elsewhere"))


def test_the_trainer_killed_at_random_moments(reference: Path, tmp_path: Path, is_full: bool) -> None:
    moments = random.Random(8)
    kills, attempt = 0, 0
    while kills < (18 if is_full else 4):
        results = tmp_path / str(attempt)
        process = start(results)
        if moments.random() < 0.3:
            time.sleep(moments.uniform(0.0, 3.0))  # also while it starts
        else:
            wait_for_new_checkpoint(folder_of(results), process)
            time.sleep(moments.uniform(0.0, 0.2))
        process.kill()
        kills += ended(process) == -signal.SIGKILL
        if process.returncode == 0:
            check(folder_of(results), reference)
            attempt += 1
    assert cli.main(fit(results)) == 0
    check(folder_of(results), reference)


HALF_WRITTEN = """
import os, signal, sys
from lightning_modules import cli
sync, calls = os.fsync, []
def half(file):
    calls.append(os.path.basename(os.readlink(f"/proc/self/fd/{file}")))
    if sum("ckpt" in name for name in calls) == 4:
        os.ftruncate(file, 1000); os.kill(os.getpid(), signal.SIGKILL)
    sync(file)
os.fsync = half
cli.main(sys.argv[1:])
"""


def test_a_kill_during_a_checkpoint_write_loses_nothing(reference: Path, tmp_path: Path) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", HALF_WRITTEN, *fit(tmp_path)], cwd=ROOT, env=ENVIRONMENT, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    assert not (folder_of(tmp_path) / "result.json").exists()
    assert cli.main(fit(tmp_path)) == 0
    check(folder_of(tmp_path), reference)


def test_a_compiled_run_that_is_killed_ends_in_identical_weights(tmp_path: Path) -> None:
    compiled = ["--model.compile", "true", "--trainer.limit_test_batches", "1"]
    assert cli.main(fit(tmp_path / "whole", *compiled)) == 0
    process = start(tmp_path / "killed", *compiled)
    wait_for_new_checkpoint(folder_of(tmp_path / "killed"), process)
    process.kill()
    assert ended(process) == -signal.SIGKILL
    assert cli.main(fit(tmp_path / "killed", *compiled)) == 0
    check(folder_of(tmp_path / "killed"), folder_of(tmp_path / "whole"))


def has_trainer(process: "subprocess.Popen[str]") -> bool:
    return any("lightning_modules.grid.process" in child.command for child in children_of(process.pid))


def test_the_script_and_its_trainer_killed_at_random_moments(
    script: Script, undisturbed: tuple[Path, str, str], tmp_path: Path, is_full: bool
) -> None:
    moments = random.Random(9)
    crn = Path("runs") / "32-64-128-256" / "common_random_numbers" / "seed0"
    expected = [row for row in without_times(undisturbed[0]) if row["estimator"] == "crn"]

    def end(results: Path) -> None:
        code, _, err = finish(script.tiny(results, *CRN))
        assert code == 0, err
        assert without_times(results) == expected
        assert figure(results, "crn") == figure(undisturbed[0], "crn")

    results, kills, attempts = tmp_path / "0", 0, 0
    while kills < (14 if is_full else 2):
        attempts += 1
        process = script.tiny(results, *CRN)
        wait_for(partial(has_trainer, process), process)
        time.sleep(moments.uniform(0.0, 8.0))
        victim = moments.choice([process.pid, *(child.pid for child in children_of(process.pid))])
        with suppress(ProcessLookupError):  # a trainer that has just ended
            os.kill(victim, signal.SIGKILL)
        code, _, err = finish(process)
        assert code in (0, 1, -signal.SIGKILL), err
        assert code != 1 or "was ended by signal 9" in err
        assert "Traceback" not in err
        kills += code != 0
        if (results / crn / "result.json").is_file():  # it was at its end: that must be right, too
            end(results)
            results = tmp_path / str(attempts)
        elif attempts % 2:  # continued in another place
            results = Path(shutil.move(results, tmp_path / f"moved{attempts}"))
    end(results)


def truncate(path: Path, chance: random.Random) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[: chance.randrange(len(whole))])


def flip(path: Path, chance: random.Random) -> None:
    whole = bytearray(path.read_bytes())
    for _ in range(20):  # of single bits, most of a checkpoint's padding would be harmless
        whole[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
    path.write_bytes(whole)


@pytest.mark.parametrize(
    ("names", "damage"), [("last.ckpt", truncate), ("best.ckpt", flip), ("last.ckpt best.ckpt", flip)]
)
def test_damaged_checkpoints(
    names: str, damage: Any, copy: Path, reference: Path, caplog: pytest.LogCaptureFixture, is_full: bool
) -> None:
    caplog.set_level("INFO", logger="releg")
    before = Path(shutil.copytree(copy, copy.with_name("before")))
    for seed in range(4 if is_full else 1):
        shutil.rmtree(copy)
        shutil.copytree(before, copy)
        for name in names.split():
            damage(folder_of(copy) / name, random.Random(f"{name} {seed}"))
        assert cli.main(fit(copy)) == 0
        assert f"{names.split()[0]} " in caplog.text
        check(folder_of(copy), reference)


@pytest.mark.parametrize("damage", [truncate, flip])
def test_a_damaged_file_of_metrics(damage: Any, copy: Path, reference: Path) -> None:
    """Rows that cannot be read are lost; weights and results do not depend on them."""
    damage(folder_of(copy) / "metrics.csv", random.Random(3))
    assert cli.main(fit(copy)) == 0
    check(folder_of(copy), reference, metrics=False)
    last = [row for row in curve(reference) if int(row[0]) > 60]
    assert [row for row in curve(folder_of(copy)) if int(row[0]) > 60] == last


def test_a_disk_that_is_full_when_a_checkpoint_is_written(copy: Path, reference: Path) -> None:
    before = {path.name: path.read_bytes() for path in folder_of(copy).glob("*.ckpt")}

    def small_disk() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))  # less than a checkpoint

    stopped = subprocess.run(
        releg_command(*fit(copy)), cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, preexec_fn=small_disk,
        check=False,
    )  # fmt: skip
    assert stopped.returncode == 2
    assert stopped.stderr.splitlines()[-1].startswith("releg: cannot use ")
    assert "Traceback" not in stopped.stderr
    kept = [path.read_bytes() for path in folder_of(copy).glob("*.ckpt")]
    assert before["last.ckpt"] in kept
    assert not list(folder_of(copy).glob("*.part"))
    assert cli.main(fit(copy)) == 0
    check(folder_of(copy), reference)


def test_two_processes_on_one_run(copy: Path, reference: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = start(copy)
    wait_for_new_checkpoint(folder_of(copy), first)
    first.send_signal(signal.SIGSTOP)  # so that it cannot end while the second one is tried
    assert cli.main(fit(copy)) == 2
    first.send_signal(signal.SIGCONT)
    complaint = capsys.readouterr().err.splitlines()[-1]
    assert complaint.startswith(f"releg: another releg fit is working in {folder_of(copy)}, expected none; ")
    assert ended(first) == 0
    check(folder_of(copy), reference)
