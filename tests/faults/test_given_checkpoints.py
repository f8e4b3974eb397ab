"""Checkpoints that the user names: evaluated with nothing else given, and the start of a run only once."""

from pathlib import Path
from typing import ClassVar

import pytest
import pytorch_lightning as pl

from lightning_modules import cli
from tests.lightning_modules.commands_helper import fit, folder_of
from tests.lightning_modules.run_states import result


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run."""
    results = tmp_path_factory.mktemp("run")
    assert cli.main(fit(results)) == 0
    return folder_of(results)


@pytest.mark.parametrize("command", ["test", "validate"])
def test_weights_are_evaluated_only_if_they_are_given(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([command, *fit(Path("r"))[1:]]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == f"releg: releg {command} got no checkpoint, expected --ckpt PATH; name a run's best.ckpt"


@pytest.mark.parametrize("option", ["--ckpt", "--ckpt_path", "--ckpt="])
def test_a_checkpoint_is_enough_to_test_it(option: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(run / "best.ckpt")
    assert cli.main(["test", *([option + path] if option.endswith("=") else [option, path])]) == 0
    said = capsys.readouterr().out
    assert f"{path}, step 60:" in said
    rows = dict(line.split() for line in said.splitlines() if line.strip().startswith("test/"))
    assert rows == {name: str(value) for name, value in result(run).items() if name.startswith("test/")}


class Interrupted(pl.Callback):
    """Notes the steps at which training begins; interrupts it the first time."""

    began: ClassVar[list[int]] = []

    def on_train_start(self, trainer: pl.Trainer, *args: object) -> None:
        self.began.append(trainer.global_step)

    def on_train_batch_start(self, trainer: pl.Trainer, *args: object) -> None:
        if len(self.began) == 1 and trainer.global_step == 95:
            raise KeyboardInterrupt


@pytest.mark.parametrize("option", ["--ckpt", "--ckpt_path"])
def test_a_given_checkpoint_is_the_start_only_once(
    option: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="releg")
    monkeypatch.setattr(Interrupted, "began", [])
    config = tmp_path / "interrupted.yaml"
    config.write_text(f"trainer: {{callbacks+: [{{class_path: {Interrupted.__module__}.Interrupted}}]}}")
    slower = ["--model.optimizer.init_args.lr", "0.0001", "--trainer.max_steps", "100"]
    given = fit(tmp_path, option, str(run / "last.ckpt"), "--config", str(config), *slower)
    assert [cli.main(given), cli.main(given)] == [130, 0]
    assert Interrupted.began == [60, 80]
    assert caplog.text.count("was trained with model.optimizer.init_args.lr 0.001; from here on it is 0.0001") == 1
    assert result(folder_of(tmp_path))["steps"] == 100
