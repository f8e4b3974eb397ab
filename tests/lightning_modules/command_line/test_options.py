"""What the commands of releg share."""

import importlib

import pytest

from lightning_modules import cli
from lightning_modules.command_line.options import add_measurement, read_estimators
from lightning_modules.command_line.parser import Parser
from lightning_modules.shipped_estimators import ESTIMATOR_CONFIGS


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (["--num-images", "1"], "--num-images: got '1', expected a whole number of at least 2; see releg x --help"),
        (["--num-images", "many"], "--num-images: got 'many', expected a whole number of at least 2"),
        (["--samples-per-image", "1"], "--samples-per-image: got '1', expected a whole number of at least 2"),
        (["--baseline-steps", "-1"], "--baseline-steps: got '-1', expected a whole number of at least 0"),
    ],
)
def test_impossible_amounts_are_refused(wrong: list[str], words: str) -> None:
    parser = Parser("releg x", "measures")
    add_measurement(parser, ["arm"], images=3, samples=4, steps=5)
    sound = parser.parse_args(["--num-images", "2"])
    assert (sound.num_images, sound.samples_per_image, sound.baseline_steps) == (2, 4, 5)
    with pytest.raises(ValueError, match=words):
        parser.parse_args(wrong)


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
