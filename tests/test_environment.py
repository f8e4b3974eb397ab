"""The set-up on throwaway clones: which commands it runs and when; what pip itself does is only noted."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import environment
from tests.environment import ROOT, SetupError, set_up, wanted_key

INSTALLATION = ["venv", "setuptools", ".[dev,bench,pyro,ray]", "nms"]  # a word of each command of a whole installation


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a space in its path."""
    monkeypatch.delenv("RELEG_PYTHON", raising=False)
    root = tmp_path / "a clone"
    (root / "tests").mkdir(parents=True)
    (root / "pyproject.toml").write_text('[project]\nrequires-python = ">=3.10,<3.13"\n')
    (root / "tests" / "constraints.txt").write_text("torch==2.0\n")
    for name in ("run.sh", "environment.py"):
        shutil.copy(ROOT / "tests" / name, root / "tests" / name)
    return root


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of an environment that is not made yet."""
    return tmp_path / "an environment"


@pytest.fixture
def done(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A word of each command that was run; the environment gets a Python."""
    words: list[str] = []

    def note(command: list[str], *_: object) -> None:
        words.extend(word for word in INSTALLATION if word in command or word in command[-1])
        (folder / "bin").mkdir(parents=True, exist_ok=True)
        (folder / "bin" / "python").unlink(missing_ok=True)
        (folder / "bin" / "python").symlink_to(sys.executable)

    monkeypatch.setattr(environment, "run", note)
    return words


@pytest.mark.parametrize("version", ["2.7.18", "3.9.18", "3.13.0"])
def test_an_unsupported_python_is_refused_with_expected_got_and_fix(
    clone: Path, folder: Path, done: list[str], version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "python_version", lambda: version)
    with pytest.raises(SetupError, match=rf"expected Python 3\.10 to 3\.12, got {version} .*RELEG_PYTHON=/path"):
        set_up(clone, folder)
    assert done == []


def test_it_installs_again_only_if_a_file_the_python_or_the_clone_is_another_one(
    clone: Path, folder: Path, done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    half = folder / "lib" / "python3.11" / "site-packages" / "half-2.0.dist-info"  # what a killed pip had written
    half.mkdir(parents=True)
    other = Path(shutil.copytree(clone, clone.with_name("another clone")))

    def installed(root: Path = clone) -> bool:
        done.clear()
        set_up(root, folder)
        assert done in ([], INSTALLATION)
        return done == INSTALLATION

    assert [installed(), installed()] == [True, False]
    assert not half.exists()
    for name in ("pyproject.toml", "tests/constraints.txt"):
        (clone / name).write_text((clone / name).read_text() + "# changed\n")
        assert [installed(), installed()] == [True, False]
    (folder / "bin" / "python").unlink()
    assert [installed(), installed(other), installed()] == [True, True, True]
    version = "3.11.0" if sys.version_info[:2] == (3, 10) else "3.10.0"
    monkeypatch.setattr(environment, "python_version", lambda: version)
    assert not installed(), "nobody asked for this Python"
    monkeypatch.setenv("RELEG_PYTHON", "another-python")
    assert installed()


def test_a_second_set_up_waits_for_the_first_and_does_not_repeat_its_work(clone: Path, folder: Path) -> None:
    stamp_environment(clone, folder)
    stamp = (folder / "releg-stamp").read_text()
    (folder / "releg-stamp").unlink()
    command = [sys.executable, str(clone / "tests" / "environment.py")]
    with (folder / "releg.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = subprocess.Popen(command, env=os.environ | {"RELEG_VENV": str(folder)}, stderr=subprocess.PIPE)
        with pytest.raises(subprocess.TimeoutExpired):
            second.wait(timeout=1)
        (folder / "releg-stamp").write_text(stamp)
    assert second.communicate(timeout=30)[1] == b""
    assert second.returncode == 0


# --- the scripts


def stamp_environment(clone: Path, folder: Path, **programs: str) -> None:
    """A finished environment that has only these packages, each of which is a program that runs with -m."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    for name, source in programs.items():
        (next(folder.glob("lib/python3*/site-packages")) / f"{name}.py").write_text(source)
    (folder / "releg-stamp").write_text(f"{wanted_key(clone)} {environment.minor_version()}")


def run_script(clone: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run run.sh of the throwaway clone, from another folder."""
    words = ["bash", str(clone / "tests" / "run.sh"), *arguments]
    variables = os.environ | {"RELEG_PYTHON": sys.executable, "RELEG_VENV": str(folder), "PYTHONPATH": ""}
    return subprocess.run(words, cwd=clone.parent, env=variables, capture_output=True, text=True, check=False)


def test_run_sh_hands_its_arguments_to_pytest_in_the_clone_it_belongs_to(clone: Path, folder: Path) -> None:
    program = "import json, os, sys\nprint(json.dumps([sys.argv[1:], os.getcwd(), sys.path[1]]))\n"
    stamp_environment(clone, folder, pytest=program)
    done = run_script(clone, folder, "-k", "two words")
    assert json.loads(done.stdout) == [["-k", "two words"], str(clone), str(clone)], done.stderr
    assert json.loads(run_script(clone, folder, "--long").stdout)[0][:3] == ["--part", "long", "-n"]


def test_run_sh_ends_with_a_sentence_when_a_command_of_the_set_up_fails(clone: Path, folder: Path) -> None:
    folder.mkdir()
    (folder / "bin").touch()  # where venv makes a folder
    done = run_script(clone, folder)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1].startswith("releg set-up: no environment could be made; install python3-venv (")
    assert not (folder / "releg-stamp").exists()


def test_run_sh_stops_before_the_suite_when_a_check_fails(clone: Path, folder: Path) -> None:
    stamp_environment(clone, folder, ruff="raise SystemExit(3)", pytest="print('ran')")
    done = run_script(clone, folder)
    assert (done.returncode, done.stdout) == (3, "")
