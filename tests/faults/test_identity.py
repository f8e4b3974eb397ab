"""Files of another run, keys taken out, two starts at one moment: a run stays what its settings say."""

import shutil
from pathlib import Path

import pytest

from lightning_modules import cli
from tests.lightning_modules import commands_helper
from tests.lightning_modules.commands_helper import SHORT, folder_of
from tests.lightning_modules.run_states import assert_identical, final_state, result


def fit(results: Path, *arguments: str) -> list[str]:
    return commands_helper.fit(results, *SHORT, *arguments)


def test_checkpoints_of_another_run_are_passed_over_or_refused(
    run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    difference = "the checkpoint's model.optimizer.init_args.lr is 0.1, expected 0"
    caplog.set_level("INFO", logger="releg")
    assert cli.main(fit(tmp_path / "foreign", "--model.optimizer.init_args.lr", "0.1")) == 0
    (foreign,) = (tmp_path / "foreign").rglob("last.ckpt")
    here = folder_of(tmp_path)
    here.mkdir(parents=True)
    shutil.copyfile(run / "config.yaml", here / "config.yaml")
    for name in ("last.ckpt", "best.ckpt"):
        shutil.copyfile(foreign.with_name(name), here / name)
    assert cli.main(["test", *fit(tmp_path)[1:], "--ckpt_path", str(here / "best.ckpt")]) == 2
    assert difference in capsys.readouterr().err
    assert cli.main(["variance", "--ckpt", str(here / "best.ckpt")]) == 2
    assert difference in capsys.readouterr().err
    assert cli.main(fit(tmp_path)) == 0
    assert f"last.ckpt cannot be continued: {difference}" in caplog.text
    assert_identical(final_state(run), final_state(here))
    assert result(here) == result(run)
