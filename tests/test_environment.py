"""The set-up code, run for real on throwaway environments in which pip, torch and torchvision are stubs."""

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
from tests.pages import PAGES, blocks

SETUPTOOLS_CALL, PROJECT_CALL, CLONE_CALL = "pip>=21.3", ".[dev,bench,ray]", "."

# Notes its arguments; fails if the environment's folder holds a file "no-network".
STUB_PIP = """
import json, pathlib, sys
folder = pathlib.Path(sys.prefix)
with (folder / "calls.jsonl").open("a") as calls:
    calls.write(json.dumps(sys.argv[1:]) + "\\n")
if (folder / "no-network").exists():
    sys.exit("ERROR: no network")
"""
STUB_TORCH = "def zeros(*size): return size\n"
STUB_TORCHVISION = """
class ops:
    @staticmethod
    def nms(boxes, scores, threshold): return []
"""
MISMATCHED_TORCHVISION = 'raise RuntimeError("operator torchvision::nms does not exist")\n'


def make_clone(root: Path) -> Path:
    (root / "tests").mkdir(parents=True)
    (root / "pyproject.toml").write_text('[project]\nrequires-python = ">=3.10,<3.13"\n')
    (root / "tests" / "constraints.txt").write_text("torch==2.0\n")
    return root


def site_packages(env: Environment) -> Path:
    return next(env.folder.glob("lib/python3*/site-packages"))


def add_distribution(env: Environment, name: str, source: str, version: str = "2.0") -> Path:
    """Write a package of one file, as pip leaves it: with a RECORD of names and sizes."""
    site = site_packages(env)
    info = site / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    (site / name).mkdir()
    (site / name / "__init__.py").write_text(source)
    (info / "RECORD").write_text(f"{name}/__init__.py,,{len(source)}\n{info.name}/METADATA,,\n{info.name}/RECORD,,\n")
    return info


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Environment:
    """A clone, and an environment in which nothing was set up yet; both have a space in their paths."""
    monkeypatch.delenv("RELEG_PYTHON", raising=False)
    env = Environment(make_clone(tmp_path / "a clone"), tmp_path / "an environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(env.folder)], check=True)
    add_distribution(env, "pip", "")
    (site_packages(env) / "pip" / "__main__.py").write_text(STUB_PIP)
    add_distribution(env, "torch", STUB_TORCH)
    add_distribution(env, "torchvision", STUB_TORCHVISION)
    return env


def pip_calls(env: Environment) -> list[str]:
    """What each call of pip since the last look was for."""
    log = env.folder / "calls.jsonl"
    calls = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    log.unlink(missing_ok=True)
    return [SETUPTOOLS_CALL if SETUPTOOLS_CALL in call else call[-1] for call in calls]


# --- which Python


@pytest.mark.parametrize("version", ["2.7.18", "3.9.18", "3.13.0", "4.10.0"])
def test_an_unsupported_python_is_refused_with_expected_got_and_fix(
    env: Environment, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "running", lambda: version)
    with pytest.raises(SetupError, match=rf"expected Python 3\.10 to 3\.12, got {version} .*RELEG_PYTHON=/path"):
        set_up(env)
    assert pip_calls(env) == []


def test_an_environment_of_another_python_than_the_named_one_is_refused(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_up(env)
    monkeypatch.setenv("RELEG_PYTHON", "another-python")
    monkeypatch.setattr(environment, "running", lambda: "3.11.0" if sys.version_info[:2] == (3, 10) else "3.10.0")
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
    assert pip_calls(env) == [SETUPTOOLS_CALL, PROJECT_CALL]
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("started a process"))
    set_up(env)


@pytest.mark.parametrize("name", ["pyproject.toml", "tests/constraints.txt"])
def test_a_changed_file_installs_again(env: Environment, name: str) -> None:
    set_up(env)
    pip_calls(env)
    with (env.root / name).open("a") as file:
        file.write("# changed\n")
    set_up(env)
    assert pip_calls(env) == [SETUPTOOLS_CALL, PROJECT_CALL]


def test_the_stamp_tells_files_apart_even_if_their_concatenation_is_the_same(env: Environment) -> None:
    before = environment.key(env)
    text = env.constraints.read_text()
    env.pyproject.write_text(env.pyproject.read_text() + text[0])
    env.constraints.write_text(text[1:])
    assert environment.key(env) != before


def test_another_clone_with_the_same_files_only_takes_over_the_editable_installation(env: Environment) -> None:
    set_up(env)
    pip_calls(env)
    other = Environment(make_clone(env.root.parent / "another clone"), env.folder)
    set_up(other)
    assert pip_calls(env) == [CLONE_CALL]
    assert environment.is_ready(other)
    assert not environment.is_ready(env)


def test_a_failing_pip_leaves_no_stamp_and_the_next_run_installs(env: Environment) -> None:
    (env.folder / "no-network").touch()
    with pytest.raises(SetupError, match=r"pip could not install .*exit code 1.*check the network and the disk"):
        set_up(env)
    assert not env.stamp.exists()
    (env.folder / "no-network").unlink()
    pip_calls(env)
    set_up(env)
    assert pip_calls(env) == [SETUPTOOLS_CALL, PROJECT_CALL]


def test_a_failing_re_installation_withdraws_the_old_stamp(env: Environment) -> None:
    set_up(env)
    env.constraints.write_text("torch==3.0\n")
    (env.folder / "no-network").touch()
    with pytest.raises(SetupError, match="pip could not install"):
        set_up(env)
    assert not env.stamp.exists()


# --- what an interruption leaves behind


def test_what_a_killed_pip_left_half_written_counts_as_not_installed(env: Environment) -> None:
    site = site_packages(env)
    truncated = add_distribution(env, "truncated", "value = 1\n")
    (site / "truncated" / "__init__.py").write_text("val")
    lost = add_distribution(env, "lost", "")
    shutil.rmtree(site / "lost")
    unrecorded = add_distribution(env, "unrecorded", "")
    (unrecorded / "RECORD").unlink()
    moved_away = site / "~orch"
    moved_away.mkdir()
    whole = add_distribution(env, "whole", "value = 1\n")
    set_up(env)
    assert [path.exists() for path in (truncated, lost, unrecorded, moved_away, whole)] == [False] * 4 + [True]


def test_a_finished_environment_is_not_searched_for_half_written_packages(env: Environment) -> None:
    set_up(env)
    edited = add_distribution(env, "edited", "value = 1\n")
    (site_packages(env) / "edited" / "__init__.py").write_text("value = 2  # while debugging\n")
    env.constraints.write_text("torch==3.0\n")
    set_up(env)
    assert edited.exists()


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
    assert [command[-1] for command in commands[1:]] == ["setuptools", PROJECT_CALL]
    assert not stale.exists()


def test_a_folder_with_other_things_in_it_is_refused_and_left_alone(env: Environment, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "thesis.tex").touch()
    with pytest.raises(SetupError, match="expected an empty folder or a working environment"):
        set_up(Environment(env.root, home))
    assert [path.name for path in home.iterdir()] == ["thesis.tex"]


# --- the lock

SET_UP_IN_ANOTHER_PROCESS = """
import sys
from pathlib import Path
from tests import environment
environment.set_up(environment.Environment(Path(sys.argv[1]), Path(sys.argv[2])))
"""


def test_a_second_set_up_waits_for_the_first_says_so_and_does_not_repeat_its_work(env: Environment) -> None:
    with environment.locked(env) as lock:
        second = subprocess.Popen(
            [sys.executable, "-c", SET_UP_IN_ANOTHER_PROCESS, str(env.root), str(env.folder)],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert second.stderr is not None
        assert "waiting for another set-up" in second.stderr.readline()
        assert pip_calls(env) == []
        environment.install(env, lock)
        environment.write_stamp(env)
    assert second.wait(timeout=30) == 0
    second.stderr.close()
    assert pip_calls(env) == [SETUPTOOLS_CALL, PROJECT_CALL]  # the first one's


def test_a_command_that_outlives_its_set_up_keeps_the_lock(env: Environment) -> None:
    # pip, started by a set-up that is killed while pip runs: this process plays the set-up's successor.
    (site_packages(env) / "pip" / "__main__.py").write_text(
        "import sys; print('started', flush=True); sys.stdin.read()"
    )
    first = subprocess.Popen(
        [sys.executable, "-c", SET_UP_IN_ANOTHER_PROCESS, str(env.root), str(env.folder)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert first.stdin is not None
    assert first.stderr is not None
    while first.stderr.readline() != "started\n":
        assert first.poll() is None
    first.kill()
    first.wait()
    with env.lock.open() as lock:
        with pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        first.stdin.close()  # the orphan ends
        fcntl.flock(lock, fcntl.LOCK_EX)
    first.stderr.close()


# --- torch and torchvision


def test_a_mismatched_torchvision_stops_the_set_up_with_cause_and_cure(env: Environment) -> None:
    (site_packages(env) / "torchvision" / "__init__.py").write_text(MISMATCHED_TORCHVISION)
    set_sizes(env, "torchvision")
    with pytest.raises(SetupError) as error:
        set_up(env)
    for part in ("got torch 2.0 and torchvision 2.0", "operator torchvision::nms does not exist", "pip config list"):
        assert part in str(error.value)
    assert not env.stamp.exists()


def test_a_torchvision_without_its_compiled_operators_stops_the_set_up(env: Environment) -> None:
    (site_packages(env) / "torchvision" / "__init__.py").write_text("class ops: pass\n")
    set_sizes(env, "torchvision")
    with pytest.raises(SetupError, match="has no attribute 'nms'"):
        set_up(env)


def set_sizes(env: Environment, name: str) -> None:
    """Record a package's file as whole."""
    site = site_packages(env)
    size = (site / name / "__init__.py").stat().st_size
    (site / f"{name}-2.0.dist-info" / "RECORD").write_text(f"{name}/__init__.py,,{size}\n")


# --- the scripts


def run_script(env: Environment, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a copy of run.sh and environment.py in the throwaway clone, from another folder."""
    for name in ("run.sh", "environment.py"):
        shutil.copy(ROOT / "tests" / name, env.root / "tests" / name)
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
    add_distribution(env, "pytest", "")
    (site_packages(env) / "pytest" / "__main__.py").write_text(program)
    done = run_script(env, "-k", "two words", PYTHONPATH="")
    assert json.loads(done.stdout) == [["-k", "two words"], str(env.root), str(env.root)], done.stderr


def test_run_sh_runs_the_long_part_in_several_processes(env: Environment) -> None:
    add_distribution(env, "pytest", "")
    (site_packages(env) / "pytest" / "__main__.py").write_text("import sys\nprint(*sys.argv[1:4])\n")
    assert run_script(env, "--long").stdout.startswith("--part long -n")


def test_run_sh_ends_with_a_sentence_when_pip_fails(env: Environment) -> None:
    (env.folder / "no-network").touch()
    done = run_script(env)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1].startswith("releg set-up: pip could not install")


def test_run_sh_ends_with_a_sentence_when_the_folder_cannot_be_made(env: Environment) -> None:
    done = run_script(env, RELEG_VENV=str(env.pyproject / "inside a file"))
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "could not use" in done.stderr


def test_run_sh_stops_before_the_suite_when_a_check_fails(env: Environment) -> None:
    for name, program in (("ruff", "raise SystemExit(3)"), ("pytest", "print('ran')")):
        add_distribution(env, name, "")
        (site_packages(env) / name / "__main__.py").write_text(program)
    done = run_script(env)
    assert (done.returncode, done.stdout) == (3, "")


def test_every_script_passes_shellcheck_and_uses_nothing_newer_than_bash_3() -> None:
    scripts = [ROOT / ".ci" / "run", *ROOT.glob("*.sh"), *ROOT.glob("tests/**/*.sh")]
    assert len(scripts) >= 2
    shellcheck = Path(sys.executable).with_name("shellcheck")
    done = subprocess.run([shellcheck, *scripts], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    newer = re.compile(r"\b(declare -A|mapfile|readarray|flock)\b|\$\{\w+(\^\^|,,|@[A-Z])")
    assert [script.name for script in scripts if newer.search(script.read_text())] == []


# --- what the pages say


def test_every_script_in_a_documented_command_exists_and_ci_runs_the_test_command() -> None:
    commands = [line for page in PAGES for block in blocks(page.read_text(), "bash") for line in block.splitlines()]
    scripts = [command.split()[1] for command in commands if command.startswith("bash ")]
    assert {"tests/run.sh", "reproduce.sh"} <= set(scripts)
    assert [script for script in scripts if not (ROOT / script).is_file()] == []
    commands = (ROOT / ".ci" / "run").read_text().splitlines()[-2:]
    assert commands == ['bash "$run"', 'bash "$run" --long']
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_the_examples_run() -> None:
    examples = [(page, block) for page in PAGES for block in blocks(page.read_text(), "python")]
    assert len(examples) >= 2
    for page, example in examples:
        exec(compile(example, str(page), "exec"), {})
