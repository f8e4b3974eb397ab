"""What the commands of releg share."""

import importlib

import pytest

from lightning_modules import cli
from lightning_modules.command_line.options import read_estimators
from lightning_modules.shipped_estimators import ESTIMATOR_CONFIGS


def test_estimators_are_told_apart_by_the_names_of_their_files() -> None:
    assert list(read_estimators(["arm", str(ESTIMATOR_CONFIGS / "disarm.yaml")])) == ["arm", "disarm"]
    with pytest.raises(ValueError, match="--estimators has arm arm, expected different names"):
        read_estimators(["arm", "my/arm.yaml"])


@pytest.mark.parametrize("command", cli.OWN_COMMANDS)
def test_help_says_what_the_command_does_and_what_every_option_means(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([command, "--help"]) == 0
    own = importlib.import_module(f"lightning_modules.command_line.{command}")
    parser = own.build_parser()
    assert capsys.readouterr().out == parser.format_help()
    assert parser.description
    assert [action.option_strings for action in parser._actions if not action.help] == []
