"""The options of reproduce.sh."""

import os
import subprocess
import sys
from importlib import import_module
from inspect import isabstract, signature
from pathlib import Path

import pytest

from lightning_modules import RESULTS
from lightning_modules.grid.launchers.contract import Launcher
from lightning_modules.grid.options import LAUNCHERS, OTHER_ARCHITECTURES, budget_file, parse_options
from tests.environment import ROOT


@pytest.mark.parametrize(
    ("budget", "folder"), [("standard", ""), ("smoke", "smoke"), ("quick", "quick"), ("converged", "converged")]
)
def test_only_the_published_budget_writes_over_the_published_table(budget: str, folder: str) -> None:
    assert parse_options(["--budget", budget]).results == RESULTS / folder


def test_a_budget_of_ones_own_does_not_replace_the_results_of_one_that_is_shipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "converged.yaml"
    own.write_bytes(budget_file("smoke").read_bytes())
    with pytest.raises(SystemExit):
        parse_options(["--budget", str(own)])
    assert "named like the budget converged that is shipped" in capsys.readouterr().err
    assert parse_options(["--budget", str(own.rename(tmp_path / "mine.yaml"))]).results == RESULTS / "mine"
    assert parse_options(["--budget", str(budget_file("quick"))]).results == RESULTS / "quick"


def test_a_shipped_budget_is_the_same_by_its_path() -> None:
    by_path = os.path.relpath(budget_file("standard"))
    assert parse_options(["--budget", by_path]) == parse_options(["--budget", "standard"])


def test_a_net_that_the_paper_lacks_is_trained_only_if_it_is_named() -> None:
    assert "200" in OTHER_ARCHITECTURES
    assert not parse_options([]).wants("200", "lr")
    assert parse_options(["--only", "200"]).wants("200", "lr")
    assert not parse_options(["--only", "200,crn"]).wants("200", "lr")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--budget", "huge"], "there is no budget huge, expected one of smoke, quick, standard, converged, paper"),
        (["--only", "100-100"], "got the architecture 100-100, expected one of 200-200, 200-200-200, "),
        (["--only", "200-200,arm"], "--only names arm, expected lr or crn; add --extended"),
        (
            ["--only", "200-200,nobody"],
            "got the estimator nobody, expected one of lr, crn, or with --extended one of arm",
        ),
        (["--extended", "--only", "200-200-200,arm"], "--only names arm on 200-200-200, expected 200-200, the arch"),
        (["--only", "200-200,"], "got the estimator , expected one of lr, crn"),
        (["--seeds", "0"], "argument --seeds: got '0', expected a whole number of at least 1"),
        (["--jobs", "0"], "argument --jobs: got '0', expected a whole number of at least 1"),
        (["--jobs", "²"], "argument --jobs: got '²', expected a whole number of at least 1"),
        (["--seeds", "-1"], "argument --seeds: "),
        (["--launcher", "slurm"], "argument --launcher: invalid choice: 'slurm' (choose from "),
        (["--ray-address", "here:1"], "--ray-address is given, expected --launcher ray with it"),
        (["--gpus-per-run", "0.5"], "--gpus-per-run is given, expected --launcher ray with it"),
        (["--launcher", "ray", "--gpus-per-run", "2"], "argument --gpus-per-run: got 2, expected a number from 0 to 1"),
        (["--launcher", "ray", "--jobs", "2"], "--jobs is given, expected --launcher local with it"),
    ],
)
def test_a_mistake_is_one_sentence_that_says_what_was_expected(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        parse_options(arguments)
    assert end.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith("reproduce.sh: ")
    assert expected in err
    assert err.count("\n") == 1


def test_a_mistake_is_answered_before_lightning_is_loaded() -> None:
    program = (
        "import sys; from lightning_modules.grid.__main__ import main\n"
        "try: main(['--jobs', '0'])\n"
        "finally: print('pytorch_lightning' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "False\n"), done.stderr


@pytest.mark.parametrize("name", LAUNCHERS)
def test_every_launcher_of_the_table_keeps_the_contract(name: str) -> None:
    module = import_module(f"lightning_modules.grid.{LAUNCHERS[name].module}")
    own = [each for each in vars(module).values() if isinstance(each, type) and issubclass(each, Launcher)]
    (launcher,) = (each for each in own if each is not Launcher)
    assert not isabstract(launcher)
    assert launcher.pace
    assert list(signature(module.opened).parameters) == ["options", "runs", "lock"]
