"""Killed at any moment, a run goes on and ends in the same weights, bit for bit."""

import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from lightning_modules import cli
from tests.lightning_modules.commands_helper import ENVIRONMENT, ROOT, TINY, releg, releg_command
from tests.lightning_modules.run_states import assert_identical, curve, final_state, wait_for_new_checkpoint


def fit(results: Path, estimator: str) -> list[str]:
    configs = ("--config", f"estimator/{estimator}.yaml", "--config", "schedule/linear.yaml")
    return ["fit", *TINY, *configs, "--results_dir", str(results)]


def run_folder(results: Path, estimator: str) -> Path:
    return results / "runs" / "6-12" / estimator / "seed0"


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Estimator and run folder; test_faults does the like to the estimator with state of its own."""
    estimator = "common_random_numbers"
    results = tmp_path_factory.mktemp("uninterrupted")
    done = releg(*fit(results, estimator))
    assert done.returncode == 0, done.stderr
    return estimator, run_folder(results, estimator)


@pytest.mark.long
def test_a_run_killed_at_random_moments_ends_in_identical_weights(
    uninterrupted: tuple[str, Path], tmp_path: Path
) -> None:
    estimator, reference = uninterrupted
    moments = random.Random(estimator)
    command = releg_command(*fit(tmp_path, estimator))
    kills = 0
    for _ in range(2):
        process = subprocess.Popen(command, cwd=ROOT, env=ENVIRONMENT, stderr=subprocess.DEVNULL)
        wait_for_new_checkpoint(run_folder(tmp_path, estimator), process)
        time.sleep(moments.uniform(0.0, 0.3))
        process.send_signal(signal.SIGKILL)
        kills += process.wait() == -signal.SIGKILL
    done = releg(*fit(tmp_path, estimator))
    assert done.returncode == 0, done.stderr
    assert kills > 0
    folder = run_folder(tmp_path, estimator)
    assert_identical(final_state(reference), final_state(folder))
    assert curve(reference) == curve(folder)
    assert (reference / "result.json").is_file()


@pytest.mark.long
def test_a_kill_during_a_checkpoint_write_loses_nothing(uninterrupted: tuple[str, Path], tmp_path: Path) -> None:
    estimator, reference = uninterrupted
    script = (
        "import os, signal, sys, torch\n"
        "from lightning_modules import cli; from lightning_modules.run import checkpoints\n"
        "save, calls = torch.save, []\n"
        "def half(value, file):\n"
        "    calls.append(1)\n"
        "    if len(calls) == 4:\n"
        "        file.write(b'PK half'); file.flush(); os.kill(os.getpid(), signal.SIGKILL)\n"
        "    save(value, file)\n"
        "checkpoints.torch.save = half\n"
        "cli.main(sys.argv[1:])\n"
    )
    killed = subprocess.run(
        [releg_command()[0], "-c", script, *fit(tmp_path, estimator)],
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    folder = run_folder(tmp_path, estimator)
    assert not (folder / "result.json").exists()
    done = releg(*fit(tmp_path, estimator))
    assert done.returncode == 0, done.stderr
    assert "continuing" in done.stderr
    assert_identical(final_state(reference), final_state(folder))


def test_a_damaged_last_checkpoint_is_reported_and_the_run_still_ends_the_same(
    uninterrupted: tuple[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="releg")
    estimator, reference = uninterrupted
    folder = run_folder(tmp_path, estimator)
    folder.mkdir(parents=True)
    for name in ("config.yaml", "metrics.csv", "provenance.json", "previous.ckpt"):
        (folder / name).write_bytes((reference / name).read_bytes())
    (folder / "last.ckpt").write_bytes((reference / "last.ckpt").read_bytes()[:5000])
    assert cli.main(fit(tmp_path, estimator)) == 0
    assert "last.ckpt is damaged" in caplog.text
    assert "continuing" in caplog.text
    assert_identical(final_state(reference), final_state(folder))
    assert curve(reference) == curve(folder)


def test_a_finished_run_is_kept_and_other_settings_get_a_folder_of_their_own(
    uninterrupted: tuple[str, Path], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="releg")
    estimator, reference = uninterrupted
    before = (reference / "last.ckpt").stat().st_mtime_ns
    results = reference.parents[3]
    assert cli.main(fit(results, estimator)) == 0
    assert "finished already" in caplog.text
    assert (reference / "last.ckpt").stat().st_mtime_ns == before
    assert cli.main([*fit(results, estimator), "--model.optimizer.init_args.lr", "0.002"]) == 0
    assert (reference.with_name("seed0-2") / "result.json").is_file()
    assert (reference / "last.ckpt").stat().st_mtime_ns == before
