"""The releg command as a user types it."""

import subprocess
import sys
from pathlib import Path

import pytest

from lightning_modules import CONFIGS, cli
from tests.lightning_modules.commands_helper import ENVIRONMENT, TINY
from tests.pages import blocks, section

ARCHITECTURES = sorted(path.name for path in (CONFIGS / "architecture").glob("*.yaml"))
ESTIMATORS = sorted(path.name for path in (CONFIGS / "estimator").glob("*.yaml"))
BUDGETS = sorted(path.name for path in (CONFIGS / "budget").glob("*.yaml"))


TOGETHER = [
    *(("sbn_32_64_128_256.yaml", estimator) for estimator in ESTIMATORS),
    *((architecture, "likelihood_ratio.yaml") for architecture in ARCHITECTURES),
    *((architecture, "common_random_numbers.yaml") for architecture in ARCHITECTURES),
]


@pytest.mark.parametrize(("architecture", "estimator"), sorted(set(TOGETHER)))
def test_every_shipped_architecture_and_estimator_runs(architecture: str, estimator: str, tmp_path: Path) -> None:
    configs = ["base.yaml", f"architecture/{architecture}", f"estimator/{estimator}"]
    arguments = [word for config in configs for word in ("--config", config)]
    fast = ["--trainer.fast_dev_run", "2", "--results_dir", str(tmp_path)]
    assert cli.main(["fit", *arguments, *fast]) == 0
    assert not any(tmp_path.iterdir())  # a trial leaves nothing


@pytest.mark.parametrize("line", blocks(section("lightning_modules", "From the command line"), "bash")[0].splitlines())
def test_the_commands_that_the_page_shows_first_run(line: str, tmp_path: Path) -> None:
    program, *arguments = line.split()
    assert program == "releg"
    assert cli.main([*arguments, "--trainer.fast_dev_run", "2", "--results_dir", str(tmp_path)]) == 0


def test_an_estimator_of_the_current_folder_can_be_named(tmp_path: Path) -> None:
    """The one of releg/README.md, through the command that the environment has."""
    (tmp_path / "my_module.py").write_text(blocks(section("releg", "Plug in your own estimator"), "python")[0])
    command = Path(sys.executable).with_name("releg")
    arguments = ["fit", *TINY, "--model.estimator", "my_module.Plain", "--trainer.fast_dev_run", "1"]
    done = subprocess.run([command, *arguments], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_help_from_any_folder_begins_with_two_examples_and_the_projects_own_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["fit", "--help"]) == 0
    explained = capsys.readouterr().out
    usage, _, *examples = explained.splitlines()
    assert usage == "usage: releg fit [OPTIONS]"
    assert [line[:19] for line in examples[:2]] == ["releg fit --config "] * 2
    parts = ["--results_dir", "units per layer, shallow first", "--data.help [CLASS", "--trainer.max_steps MAX_STEPS"]
    assert sorted(parts, key=explained.index) == parts, "our own settings first"


@pytest.mark.parametrize("option", ["--weights_only", "--return_predictions"])
def test_what_would_be_dropped_is_no_option(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["predict", option, "false"]) == 2
    assert option in capsys.readouterr().err


def test_a_data_set_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["fit", "--data.help", "BinarizedMNIST"]) == 0
    assert "redraws the training bits" in " ".join(capsys.readouterr().out.split())
