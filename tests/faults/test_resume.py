"""Killed while it is compiled or writes a checkpoint, a run ends in the same weights; test_faults kills at random."""

import signal
import subprocess
from pathlib import Path

import pytest

from tests.lightning_modules import commands_helper
from tests.lightning_modules.commands_helper import ENVIRONMENT, ROOT, folder_of, releg, releg_command
from tests.lightning_modules.run_states import assert_identical, final_state, wait_for_new_checkpoint

ESTIMATOR = "common_random_numbers"  # test_faults trains the one with state of its own


def fit(results: Path) -> list[str]:
    return commands_helper.fit(results, "--config", "schedule/linear.yaml", estimator=ESTIMATOR)


def run_folder(results: Path) -> Path:
    return folder_of(results, estimator=ESTIMATOR)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that nothing happened to."""
    results = tmp_path_factory.mktemp("uninterrupted")
    done = releg(*fit(results))
    assert done.returncode == 0, done.stderr
    return run_folder(results)


@pytest.mark.long
def test_a_compiled_run_that_is_killed_ends_in_identical_weights(tmp_path: Path) -> None:
    whole, killed = ([*fit(tmp_path / name), "--model.compile", "true"] for name in ("whole", "killed"))
    assert releg(*whole).returncode == 0
    process = subprocess.Popen(releg_command(*killed), cwd=ROOT, env=ENVIRONMENT, stderr=subprocess.DEVNULL)
    wait_for_new_checkpoint(run_folder(tmp_path / "killed"), process)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert releg(*killed).returncode == 0
    assert_identical(final_state(run_folder(tmp_path / "whole")), final_state(run_folder(tmp_path / "killed")))


@pytest.mark.long
def test_a_kill_during_a_checkpoint_write_loses_nothing(reference: Path, tmp_path: Path) -> None:
    script = (
        "import os, signal, sys\n"
        "from lightning_modules import cli\n"
        "sync, calls = os.fsync, []\n"
        "def half(file):\n"
        "    calls.append(os.path.basename(os.readlink(f'/proc/self/fd/{file}')))\n"
        "    if sum('ckpt' in name for name in calls) == 4:\n"
        "        os.ftruncate(file, 1000); os.kill(os.getpid(), signal.SIGKILL)\n"
        "    sync(file)\n"
        "os.fsync = half\n"
        "cli.main(sys.argv[1:])\n"
    )
    killed = subprocess.run(
        [releg_command()[0], "-c", script, *fit(tmp_path)],
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    folder = run_folder(tmp_path)
    assert not (folder / "result.json").exists()
    done = releg(*fit(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "continuing" in done.stderr
    assert_identical(final_state(reference), final_state(folder))
