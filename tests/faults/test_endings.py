"""How a run ends that does not finish, and what its files are worth: signals, time limits, damaged results."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
import pytorch_lightning as pl

from lightning_modules import cli
from lightning_modules.run.checkpoints import load_checkpoint
from tests.lightning_modules import commands_helper
from tests.lightning_modules.commands_helper import ENVIRONMENT, ROOT, folder_of, releg_command
from tests.lightning_modules.run_states import assert_identical, curve, final_state, result

# One validation, at the end: without checkpoints in between, an interruption would lose everything
STEPS = ["--trainer.max_steps", "60", "--trainer.val_check_interval", "60", "--trainer.log_every_n_steps", "5"]
PLAIN = ["--model.compile", "false"]  # of runs that are long by their settings alone


def fit(results: Path, *arguments: str) -> list[str]:
    return commands_helper.fit(results, *STEPS, *arguments)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run."""
    results = tmp_path_factory.mktemp("run")
    assert cli.main(fit(results)) == 0
    return folder_of(results)


class Interrupter(pl.Callback):
    """Sends this process a signal in the middle of training, once; or lets minutes pass."""

    def __init__(self, number: int = 0, minutes: float = 0.0) -> None:
        self.number, self.minutes = number, minutes

    def on_train_batch_start(self, trainer: pl.Trainer, *args: object) -> None:
        if trainer.global_step == 19:  # step 20 is logged: the checkpoint has to wait for step 21
            if self.number:
                os.kill(os.getpid(), self.number)
            elif self.minutes:
                time.monotonic = (lambda now: lambda: now() + 60 * self.minutes)(time.monotonic)
        if trainer.global_step == 30 and self.minutes:
            raise RuntimeError("killed")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_saves_a_checkpoint_and_ends_with_its_own_exit_code(
    number: int, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(number)
    config = tmp_path / "interrupted.yaml"
    class_path = f"{Interrupter.__module__}.Interrupter"
    config.write_text(f"trainer: {{callbacks+: [{{class_path: {class_path}, init_args: {{number: {int(number)}}}}}]}}")
    assert cli.main(fit(tmp_path, "--config", str(config))) == 128 + number
    said = capsys.readouterr().err.splitlines()[-1]
    name = signal.Signals(number).name
    assert said == f"releg: ended by {name}; step 21 of 60 is saved; the same command continues from there"
    assert signal.getsignal(number) == before
    assert cli.main(fit(tmp_path, "--config", str(config))) == 0
    assert_identical(final_state(run), final_state(folder_of(tmp_path)))
    assert curve(run) == curve(folder_of(tmp_path))


def test_a_checkpoint_is_saved_after_some_minutes_without_a_validation(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "monotonic", time.monotonic)  # put back afterwards
    config = tmp_path / "late.yaml"
    class_path = f"{Interrupter.__module__}.Interrupter"
    config.write_text(f"trainer: {{callbacks+: [{{class_path: {class_path}, init_args: {{minutes: 6}}}}]}}")
    assert cli.main(fit(tmp_path, "--config", str(config))) == 1
    assert final_state(folder_of(tmp_path)) is not None
    monkeypatch.setattr(Interrupter, "on_train_batch_start", lambda *_: None)
    assert cli.main(fit(tmp_path, "--config", str(config))) == 0
    assert_identical(final_state(run), final_state(folder_of(tmp_path)))
    assert curve(run) == curve(folder_of(tmp_path))


@pytest.mark.long
def test_a_terminated_command_goes_on_when_it_is_given_again(tmp_path: Path) -> None:
    command = releg_command(*fit(tmp_path, "--trainer.max_steps", "100000"))
    metrics, steps, seconds = folder_of(tmp_path) / "metrics.csv", [0], [0.0]
    for _ in range(2):
        process = subprocess.Popen(command, cwd=ROOT, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
        while process.poll() is None and not (metrics.exists() and int(curve(metrics.parent)[-1][0]) > steps[-1]):
            time.sleep(0.05)
        process.terminate()
        _, said = process.communicate(timeout=60)
        assert process.returncode == 128 + signal.SIGTERM, said
        ended = re.search(r"releg: ended by SIGTERM; step (\d+) of 100000 is saved", said.splitlines()[-1])
        assert ended is not None
        assert ("continuing" in said) == (steps[-1] > 0)
        steps.append(int(ended[1]))
        seconds.append(load_checkpoint(metrics.with_name("last.ckpt"))["callbacks"]["TrainingClock"]["seconds"])
    assert steps[0] < steps[1] < steps[2]
    assert seconds[0] < seconds[1] < seconds[2]


def test_a_time_limit_has_an_exit_code_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    limited = fit(tmp_path, "--trainer.max_steps", "1000000", "--trainer.max_time", "00:00:00:01", *PLAIN)
    assert cli.main(limited) == 75
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(f"releg: {folder_of(tmp_path)} is not finished: training stopped at step ")
    assert said.endswith("; the same command continues it")
    assert (folder_of(tmp_path) / "last.ckpt").is_file()


def test_no_number_that_is_not_finite_enters_a_result(tmp_path: Path) -> None:
    unlimited = fit(
        tmp_path, "--trainer.max_steps", "-1", "--trainer.max_epochs", "1", "--data.batch_size", "25000", *PLAIN
    )
    assert cli.main([*unlimited, "--trainer.limit_val_batches", "0"]) == 0
    text = (folder_of(tmp_path) / "result.json").read_text()
    assert json.loads(text)["val/elbo"] is None
    assert "Infinity" not in text


@pytest.mark.parametrize("damage", ["emptied", "cut", "changed", "without a digest", "infinite"])
def test_a_damaged_result_is_computed_again(
    damage: str, run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="releg")
    shutil.copytree(run.parents[3], tmp_path, dirs_exist_ok=True)
    path = folder_of(tmp_path) / "result.json"
    content = json.loads(path.read_text())
    text = {
        "emptied": "",
        "cut": path.read_text()[:50],
        "changed": json.dumps({**content, "test/elbo": content["test/elbo"] + 1}),
        "without a digest": json.dumps({name: value for name, value in content.items() if name != "digest"}),
        "infinite": json.dumps({**content, "test/elbo": float("-inf")}),
    }[damage]
    path.write_text(text)
    path.with_name("metrics.csv").unlink()  # nothing else vouches for the numbers
    assert cli.main(fit(tmp_path)) == 0
    assert "result.json is damaged, expected the result of a finished run" in caplog.text
    assert result(folder_of(tmp_path)) == result(run)


def test_a_damaged_result_without_checkpoints_is_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = folder_of(tmp_path)
    folder.mkdir(parents=True)
    for name in ("config.yaml", "metrics.csv", "provenance.json"):
        shutil.copyfile(run / name, folder / name)
    (folder / "result.json").write_text("{}")
    assert cli.main(fit(tmp_path)) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(
        f"releg: {folder / 'result.json'} is damaged, expected the result of a finished run; delete "
    )
    assert (folder / "result.json").read_text() == "{}"
