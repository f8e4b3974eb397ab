"""The options of reproduce.sh."""

import os
import re
import subprocess
import sys
from importlib import import_module
from inspect import isabstract, signature
from pathlib import Path

import pytest

from lightning_modules import RESULTS
from lightning_modules.grid.launchers.contract import Launcher
from lightning_modules.grid.options import BUDGETS, LAUNCHERS, budget_file, is_shipped, parse_options
from tests.environment import ROOT


@pytest.mark.parametrize("budget", BUDGETS)
def test_nothing_is_written_over_published_files(budget: str) -> None:
    results = parse_options(["--budget", budget]).results
    assert results == RESULTS / "mine" / budget
    ignored = subprocess.run(["git", "check-ignore", "-q", str(results / "table1.md")], cwd=ROOT, check=False)
    assert ignored.returncode in (0, 128), "128: this is no clone"


def test_a_budget_of_ones_own_is_not_taken_for_a_shipped_one_of_its_name(tmp_path: Path) -> None:
    own = tmp_path / "standard.yaml"
    own.write_bytes(budget_file("smoke").read_bytes())
    assert not is_shipped(parse_options(["--budget", str(own)]).budget, "standard")
    by_path = os.path.relpath(budget_file("standard"))
    assert is_shipped(parse_options(["--budget", by_path]).budget, "standard")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--budget", "huge"], "there is no budget huge, expected one of smoke, quick, standard, converged, paper"),
        (["--only", "100-100"], "got the architecture 100-100, expected one of 200-200, 200-200-200, "),
        (["--only", "200-200,arm"], "got the estimator arm, expected lr or crn; the others are compared by python -m"),
        (["--only", "200-200,"], "got the estimator , expected lr or crn"),
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
def test_a_mistake_is_one_sentence_that_says_what_was_expected(arguments: list[str], expected: str) -> None:
    with pytest.raises(ValueError, match=re.escape(expected)):
        parse_options(arguments)


def test_without_ray_one_sentence_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(
        ValueError, match=r"there is no Ray here, expected it .*; install it with pip install -e '.\[ray\]'"
    ):
        parse_options(["--launcher", "ray"])


def test_a_mistake_is_answered_before_lightning_is_loaded() -> None:
    program = (
        "import sys; from lightning_modules.grid.__main__ import main\n"
        "print(main(['--jobs', '0']), 'pytorch_lightning' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == "2 False\n", done.stderr
    assert done.stderr.startswith("reproduce.sh: argument --jobs: got '0', expected")


@pytest.mark.parametrize("name", LAUNCHERS)
def test_every_launcher_of_the_table_keeps_the_contract(name: str) -> None:
    module = import_module(f"lightning_modules.grid.{LAUNCHERS[name]}")
    own = [each for each in vars(module).values() if isinstance(each, type) and issubclass(each, Launcher)]
    (launcher,) = (each for each in own if each is not Launcher)
    assert not isabstract(launcher)
    assert list(signature(module.opened).parameters) == ["options", "runs", "lock"]
