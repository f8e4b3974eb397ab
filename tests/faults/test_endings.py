"""How a run ends that does not finish, and what its files are worth: signals, damaged results."""

import json
import os
import re
import shutil
import signal
from pathlib import Path

import pytest
import pytorch_lightning as pl

from lightning_modules import cli
from tests.lightning_modules import commands_helper
from tests.lightning_modules.commands_helper import folder_of, trained
from tests.lightning_modules.run_states import assert_identical, curve, final_state, result

# One validation, at the end: without checkpoints in between, an interruption would lose everything
STEPS = ["--trainer.max_steps", "60", "--trainer.val_check_interval", "60", "--trainer.log_every_n_steps", "5"]


def fit(results: Path, *arguments: str) -> list[str]:
    return commands_helper.fit(results, *STEPS, *arguments)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run."""
    return trained(tmp_path_factory.mktemp("run"), *STEPS)


class Interrupter(pl.Callback):
    """Asks this process to end in the middle of training, once."""

    def __init__(self, after: int) -> None:
        self.after = after

    def on_train_batch_start(self, trainer: pl.Trainer, *args: object) -> None:
        if trainer.global_step == self.after:
            os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize("after", [19, 22], ids=["in a step that is logged", "in another"])
def test_sigterm_saves_a_checkpoint_and_ends_with_its_own_exit_code(
    after: int, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="releg")
    before = signal.getsignal(signal.SIGTERM)
    config = tmp_path / "interrupted.yaml"
    class_path = f"{Interrupter.__module__}.Interrupter"
    config.write_text(f"trainer: {{callbacks+: [{{class_path: {class_path}, init_args: {{after: {after}}}}}]}}")
    assert cli.main(fit(tmp_path, "--config", str(config))) == 143
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == "releg: ended by SIGTERM; the same command continues from the last checkpoint, if there is one"
    assert f"step {after + 1} is saved" in caplog.text
    assert signal.getsignal(signal.SIGTERM) == before
    provenance = folder_of(tmp_path) / "provenance.json"
    provenance.write_text(provenance.read_text().replace('"commit": "', '"commit": "of another version '))
    assert cli.main(fit(tmp_path, "--config", str(config))) == 0
    assert re.search("resuming with commit .*, before of another version ", caplog.text)
    assert_identical(final_state(run), final_state(folder_of(tmp_path)))
    assert curve(run) == curve(folder_of(tmp_path))


def test_a_damaged_result_is_refused_and_computed_again_once_it_is_deleted(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(run.parents[3], tmp_path, dirs_exist_ok=True)
    path = folder_of(tmp_path) / "result.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "test/elbo": content["test/elbo"] + 1}))
    assert cli.main(fit(tmp_path)) == 2
    assert f"{path} is damaged, expected the result of a finished run; delete it" in capsys.readouterr().err
    path.unlink()
    assert cli.main(fit(tmp_path)) == 0
    assert result(folder_of(tmp_path)) == result(run)
    assert curve(folder_of(tmp_path)) == curve(run)
