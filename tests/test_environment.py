"""The set-up, run for real on throwaway environments in which pip, torch and torchvision are stubs."""

import ast
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import environment
from tests.environment import ROOT, Environment, SetupError, set_up

EVERYTHING, CLONE = ["setuptools", ".[dev,bench,ray]"], ["."]  # the last words of the calls of pip

# Notes its arguments; fails if the environment's folder holds a file "no-network".
STUB_PIP = """
import json, pathlib, sys
folder = pathlib.Path(sys.prefix)
with (folder / "calls.jsonl").open("a") as calls:
    calls.write(json.dumps(sys.argv[1:]) + "\\n")
if (folder / "no-network").exists():
    sys.exit("ERROR: no network")
"""


def make_clone(root: Path) -> Path:
    (root / "tests").mkdir(parents=True)
    (root / "pyproject.toml").write_text('[project]\nrequires-python = ">=3.10,<3.13"\n')
    (root / "tests" / "constraints.txt").write_text("torch==2.0\n")
    for name in ("run.sh", "environment.py"):
        shutil.copy(ROOT / "tests" / name, root / "tests" / name)
    return root


def site_packages(env: Environment) -> Path:
    return next(env.folder.glob("lib/python3*/site-packages"))


def add_package(env: Environment, name: str, source: str = "", program: str = "") -> Path:
    """Write a package of one file, as pip leaves it: with a RECORD of names and sizes; `program` runs with -m."""
    site = site_packages(env)
    info = site / f"{name}-2.0.dist-info"
    for folder in (info, site / name):
        folder.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Name: {name}\nVersion: 2.0\n")
    (site / name / "__init__.py").write_text(source)
    (site / name / "__main__.py").write_text(program)
    (info / "RECORD").write_text(f"{name}/__init__.py,,{len(source)}\n{info.name}/METADATA,,\n{info.name}/RECORD,,\n")
    return info


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Environment:
    """A clone and an environment that is not set up yet; both have a space in their paths."""
    monkeypatch.delenv("RELEG_PYTHON", raising=False)
    env = Environment(make_clone(tmp_path / "a clone"), tmp_path / "an environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(env.folder)], check=True)
    add_package(env, "pip", program=STUB_PIP)
    add_package(env, "torch", "def zeros(*size): return size\n")
    add_package(env, "torchvision", "class ops: nms = print")
    return env


def pip_calls(env: Environment) -> list[str]:
    """The last word of each call of pip since the last look."""
    log = env.folder / "calls.jsonl"
    calls = [json.loads(line)[-1] for line in log.read_text().splitlines()] if log.exists() else []
    log.unlink(missing_ok=True)
    return calls


# --- which Python


@pytest.mark.parametrize("version", ["2.7.18", "3.9.18", "3.13.0", "4.10.0"])
def test_an_unsupported_python_is_refused_with_expected_got_and_fix(
    env: Environment, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "python_version", lambda: version)
    with pytest.raises(SetupError, match=rf"expected Python 3\.10 to 3\.12, got {version} .*RELEG_PYTHON=/path"):
        set_up(env)
    assert pip_calls(env) == []


def test_an_environment_of_another_python_than_the_named_one_is_refused(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELEG_PYTHON", "another-python")
    other = "3.11.0" if sys.version_info[:2] == (3, 10) else "3.10.0"
    monkeypatch.setattr(environment, "python_version", lambda: other)
    with pytest.raises(SetupError, match="RELEG_PYTHON names, got one of"):
        set_up(env)


def test_the_file_loads_in_an_old_python_that_it_must_refuse() -> None:
    source = (ROOT / "tests" / "environment.py").read_text()
    tree = ast.parse(source, feature_version=(3, 7))
    assert "from __future__" not in source  # annotations: an error in 3.6
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    evaluated = [note for node in functions for note in (node.returns, *(each.annotation for each in node.args.args))]
    # Evaluated when the file is loaded: list[str] is an error before 3.9, a | b before 3.10; in quotes they are not.
    assert [ast.unparse(note) for note in evaluated if isinstance(note, ast.BinOp)] == []
    assert {ast.unparse(note.value) for note in evaluated if isinstance(note, ast.Subscript)} <= {"Iterator"}


# --- the stamp


def test_the_first_set_up_installs_everything_and_the_second_runs_nothing(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_up(env)
    assert pip_calls(env) == EVERYTHING
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("started a process"))
    set_up(env)


@pytest.mark.parametrize("name", ["pyproject.toml", "tests/constraints.txt"])
def test_a_changed_file_installs_again_and_a_failure_withdraws_the_stamp(env: Environment, name: str) -> None:
    set_up(env)
    with (env.root / name).open("a") as file:
        file.write("# changed\n")
    (env.folder / "no-network").touch()
    with pytest.raises(SetupError, match=r"pip could not install .*exit code 1.*check the network and the disk"):
        set_up(env)
    assert not env.stamp.exists()
    (env.folder / "no-network").unlink()
    pip_calls(env)
    set_up(env)
    assert pip_calls(env) == EVERYTHING


def test_another_clone_with_the_same_files_only_takes_over_the_editable_installation(env: Environment) -> None:
    set_up(env)
    pip_calls(env)
    other = Environment(make_clone(env.root.parent / "another clone"), env.folder)
    for clone in (other, env):
        set_up(clone)
        assert pip_calls(env) == CLONE


# --- what an interruption leaves behind


def test_what_a_killed_pip_left_half_written_counts_as_not_installed(env: Environment) -> None:
    site = site_packages(env)
    truncated, lost, unrecorded, whole = (add_package(env, name, "value = 1\n") for name in ("t", "l", "u", "w"))
    (site / "t" / "__init__.py").write_text("val")
    shutil.rmtree(site / "l")
    (unrecorded / "RECORD").unlink()
    moved_away = site / "~orch"
    moved_away.mkdir()
    set_up(env)
    assert [path.exists() for path in (truncated, lost, unrecorded, moved_away, whole)] == [False] * 4 + [True]
    (site / "w" / "__init__.py").write_text("value = 2  # while debugging\n")
    env.constraints.write_text("torch==3.0\n")
    set_up(env)
    assert whole.exists()  # a finished environment is not searched


def test_an_environment_whose_python_is_gone_is_made_anew(env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    set_up(env)
    env.python.unlink()
    stale = env.folder / "stale"
    stale.touch()
    commands: list[list[str]] = []

    def note(command: list[str], *_: object) -> int:
        commands.append(command)
        return 0

    monkeypatch.setattr(environment, "run", note)
    monkeypatch.setattr(environment, "check_pair", lambda _: None)
    set_up(env)
    assert commands[0] == [sys.executable, "-m", "venv", str(env.folder)]
    assert [command[-1] for command in commands[1:]] == EVERYTHING
    assert not stale.exists()


def test_a_folder_with_other_things_in_it_is_refused_and_left_alone(env: Environment, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "thesis.tex").touch()
    with pytest.raises(SetupError, match="expected an empty folder or a working environment"):
        set_up(Environment(env.root, home))
    assert [path.name for path in home.iterdir()] == ["thesis.tex"]


# --- the lock


def start_set_up(env: Environment) -> subprocess.Popen[str]:
    """In another process."""
    command = [sys.executable, str(env.root / "tests" / "environment.py")]
    variables = os.environ | {"RELEG_VENV": str(env.folder)}
    return subprocess.Popen(command, env=variables, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_second_set_up_waits_for_the_first_says_so_and_does_not_repeat_its_work(env: Environment) -> None:
    set_up(env)
    stamp = env.stamp.read_text()
    env.stamp.unlink()
    with environment.locked(env) as lock, start_set_up(env) as second:
        assert second.stderr is not None
        assert "waiting for another set-up" in second.stderr.readline()
        env.stamp.write_text(stamp)
        fcntl.flock(lock, fcntl.LOCK_UN)
        assert second.wait(timeout=30) == 0
    assert pip_calls(env) == EVERYTHING  # the first one's


def test_a_command_that_outlives_its_set_up_keeps_the_lock(env: Environment) -> None:
    # pip, started by a set-up that is killed while pip runs: this process plays the set-up's successor.
    add_package(env, "pip", program="import sys; print('started', flush=True); sys.stdin.read()")
    with start_set_up(env) as first, env.lock.open("a") as lock:
        assert first.stdin is not None
        assert first.stderr is not None
        while first.stderr.readline() != "started\n":
            assert first.poll() is None
        first.kill()
        first.wait()
        with pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        first.stdin.close()  # the orphan ends
        fcntl.flock(lock, fcntl.LOCK_EX)


# --- torch and torchvision


@pytest.mark.parametrize(
    ("torchvision", "cause"),
    [
        ('raise RuntimeError("operator torchvision::nms does not exist")', "operator torchvision::nms does not exist"),
        ("class ops: pass", "has no attribute 'nms'"),
    ],
)
def test_a_mismatched_torchvision_stops_the_set_up_with_cause_and_cure(
    env: Environment, torchvision: str, cause: str
) -> None:
    add_package(env, "torchvision", torchvision)
    with pytest.raises(SetupError) as error:
        set_up(env)
    for part in ("got torch 2.0 and torchvision 2.0", cause, "pip config list"):
        assert part in str(error.value)
    assert not env.stamp.exists()


# --- the scripts


def run_script(env: Environment, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run run.sh of the throwaway clone, from another folder."""
    return subprocess.run(
        ["bash", str(env.root / "tests" / "run.sh"), *arguments],
        cwd=env.folder.parent,
        env={**os.environ, "RELEG_PYTHON": sys.executable, "RELEG_VENV": str(env.folder), **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def test_run_sh_hands_its_arguments_to_pytest_in_the_clone_it_belongs_to(env: Environment) -> None:
    program = "import json, os, sys\nprint(json.dumps([sys.argv[1:], os.getcwd(), sys.path[1]]))\n"
    add_package(env, "pytest", program=program)
    done = run_script(env, "-k", "two words", PYTHONPATH="")
    assert json.loads(done.stdout) == [["-k", "two words"], str(env.root), str(env.root)], done.stderr
    assert json.loads(run_script(env, "--long").stdout)[0][:3] == ["--part", "long", "-n"]


def test_run_sh_ends_with_a_sentence_when_pip_fails_or_the_folder_cannot_be_made(env: Environment) -> None:
    (env.folder / "no-network").touch()
    for folder, sentence in ((env.folder, "pip could not install"), (env.pyproject / "inside a file", "could not use")):
        done = run_script(env, RELEG_VENV=str(folder))
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.splitlines()[-1].startswith(f"releg set-up: {sentence}")
    assert done.stderr.count("\n") == 1


def test_run_sh_stops_before_the_suite_when_a_check_fails(env: Environment) -> None:
    add_package(env, "ruff", program="raise SystemExit(3)")
    add_package(env, "pytest", program="print('ran')")
    done = run_script(env)
    assert (done.returncode, done.stdout) == (3, "")


def test_scripts_use_nothing_newer_than_bash_3() -> None:
    newer = re.compile(r"\b(declare -A|mapfile|readarray|flock)\b|\$\{\w+(\^\^|,,|@[A-Z])")
    scripts = [ROOT / ".ci" / "run", *ROOT.glob("*.sh"), *ROOT.glob("tests/**/*.sh")]
    assert [script.name for script in scripts if newer.search(script.read_text())] == []
