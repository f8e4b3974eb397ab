"""Checkpoints that the user names: evaluated with nothing else given, and no start of a run."""

from pathlib import Path

import pytest

from lightning_modules import cli
from tests.lightning_modules.commands_helper import fit
from tests.lightning_modules.run_states import result


@pytest.mark.parametrize("option", ["--ckpt", "--ckpt_path", "--ckpt="])
def test_a_checkpoint_is_enough_to_test_it(option: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(run / "best.ckpt")
    assert cli.main(["test", *([option + path] if option.endswith("=") else [option, path])]) == 0
    said = capsys.readouterr().out
    assert f"{path}, step 4:" in said
    rows = dict(line.split() for line in said.splitlines() if line.strip().startswith("test/"))
    assert rows == {name: str(value) for name, value in result(run).items() if name.startswith("test/")}


def test_a_run_follows_from_its_settings_and_starts_from_no_other(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(fit(tmp_path, "--ckpt", str(run / "last.ckpt"))) == 2
    assert "expected none, since a run follows from its settings" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
