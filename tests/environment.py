"""Make the environment that tests and experiments run in, and print the path of its Python.

Every script of the project starts with this line, and nothing else installs anything:

    python=$("${RELEG_PYTHON:-python3}" tests/environment.py)

RELEG_PYTHON is the interpreter to make the environment with, RELEG_VENV the folder of the environment (default: `.venv`
in the project's root); several clones can share one. A stamp in the folder says that everything in it is installed and
checked. Without a stamp, as after an interruption, the installation continues where it stopped.

Standard library only. The file must also load in an old Python 3, so that its user gets a sentence instead of a
traceback: annotations that need a newer one are in quotes.
"""

import csv
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from platform import python_version
from typing import Iterator, TextIO  # noqa: UP035 -- collections.abc.Iterator[...] fails before 3.9

ROOT = Path(__file__).resolve().parent.parent

# The compiled operators of torchvision load only with the torch that they were built for; nms is one of them.
PAIR_CHECK = """
from importlib.metadata import version
print("torch", version("torch"), "and torchvision", version("torchvision"), flush=True)
import torch, torchvision
torchvision.ops.nms(torch.zeros(1, 4), torch.zeros(1), 0.5)
"""


class SetupError(Exception):
    """One sentence for the user: expected, got, fix."""


class Environment:
    """A clone of the project and the folder of the environment that it uses."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root, self.folder = root, folder
        self.python = folder / "bin" / "python"
        self.pyproject = root / "pyproject.toml"
        self.constraints = root / "tests" / "constraints.txt"  # the exact versions
        self.stamp = folder / "releg-stamp.json"  # exists only while everything is installed and checked
        self.lock = folder / "releg.lock"  # held while installing; also marks a folder that was made here


def say(message: str) -> None:
    """Tell the user something; standard output carries only the answer."""
    print(f"releg set-up: {message}", file=sys.stderr, flush=True)


# --- which Python


def made_with(folder: Path) -> str:
    """The version of Python that an environment was made with ("3.11.7"); empty if the folder has no environment."""
    config = folder / "pyvenv.cfg"
    found = config.is_file() and re.search(r"^version(?:_info)? *= *(\S+)", config.read_text(), re.MULTILINE)
    return found.group(1) if found else ""


def minor(version: str) -> str:
    """3.11 for 3.11.7."""
    return ".".join(version.split(".")[:2])


def check_supported(version: str, where: str, env: Environment) -> None:
    """Refuse a Python outside pyproject's requires-python."""
    ((low, above),) = re.findall(r'^requires-python = ">=3\.(\d+),<3\.(\d+)"', env.pyproject.read_text("utf-8"), re.M)
    supported = [f"3.{number}" for number in range(int(low), int(above))]
    if minor(version) not in supported:
        raise SetupError(
            f"expected Python {supported[0]} to {supported[-1]}, got {version} ({where}); "
            "name another with RELEG_PYTHON=/path/to/python"
        )


def check_named_python(env: Environment) -> None:
    """Refuse an environment of another Python than the one that RELEG_PYTHON names."""
    version = made_with(env.folder)
    named = minor(python_version())
    if os.environ.get("RELEG_PYTHON") and version and minor(version) != named:
        raise SetupError(
            f"expected an environment of Python {named}, which RELEG_PYTHON names, got one of {version} in "
            f"{env.folder}; name another folder with RELEG_VENV, delete this one, or unset RELEG_PYTHON"
        )


# --- the stamp


def wanted_stamp(env: Environment) -> "dict[str, str]":
    """The stamp of a finished environment: a hash of all that decides what is installed, and the clone."""
    parts = (env.pyproject.read_bytes(), env.constraints.read_bytes(), made_with(env.folder).encode())
    digest = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts))
    return {"key": digest.hexdigest(), "root": str(env.root)}


def read_stamp(env: Environment) -> "dict[str, str]":
    """The stamp; empty if it is missing or damaged, or if there is no interpreter."""
    try:
        stamp = json.loads(env.stamp.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) and os.access(str(env.python), os.X_OK) else {}


# --- the folder


@contextmanager
def locked(env: Environment) -> Iterator[TextIO]:
    """Hold the lock of the folder; say so while waiting for it."""
    env.folder.mkdir(parents=True, exist_ok=True)
    with env.lock.open("a", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another set-up that is installing into {env.folder} ...")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock


def works(env: Environment) -> bool:
    """Whether the environment's Python starts and has pip."""
    command = [str(env.python), "-I", "-c", "import pip"]
    return env.python.exists() and subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0


def check_folder(env: Environment) -> None:
    """Refuse a folder with other things in it: set-up deletes the content of a broken environment."""
    if made_with(env.folder):
        check_supported(made_with(env.folder), str(env.python), env)
    is_empty = not env.folder.exists() or not any(env.folder.iterdir())
    if not (is_empty or env.lock.exists() or works(env)):
        raise SetupError(
            f"expected an empty folder or a working environment, got {env.folder}, which is neither; "
            "name another with RELEG_VENV, or delete it"
        )


def create(env: Environment, lock: TextIO) -> None:
    """Make a new environment with the Python that runs this file."""
    say(f"making an environment in {env.folder}")
    for path in env.folder.iterdir():
        if path != env.lock:
            remove(path)
    if run([sys.executable, "-m", "venv", str(env.folder)], env, lock) != 0:
        raise SetupError(
            f"could not make an environment in {env.folder} (see above); expected a Python with venv and pip, "
            "which on Debian and Ubuntu are in the package python3-venv"
        )


def remove(path: Path) -> None:
    """Delete a file, a link or a folder with its content."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


# --- installing


def run(command: "list[str]", env: Environment, lock: TextIO) -> int:
    """Run a command in the root of the clone, with its output on standard error.

    The command inherits the lock: if this process is killed, the next set-up still waits until the command ends.
    """
    variables = dict(os.environ, PIP_USER="0")
    return subprocess.run(
        command, cwd=env.root, env=variables, stdout=sys.stderr.fileno(), pass_fds=[lock.fileno()], check=False
    ).returncode


def pip_install(env: Environment, lock: TextIO, *arguments: str) -> None:
    """Run pip install inside the environment."""
    options = ["--no-input", "--disable-pip-version-check"]
    code = run([str(env.python), "-I", "-m", "pip", "install", *options, *arguments], env, lock)
    if code != 0:
        raise SetupError(
            f"pip could not install into {env.folder} (exit code {code}, see its reason above); check the network "
            "and the disk (6 GB are needed), then run the same command again: it continues"
        )


def install(env: Environment, lock: TextIO) -> None:
    """Install the exact versions and the project itself, editable; check that torch and torchvision match."""
    say(f"installing into {env.folder}: about 6 GB, some minutes the first time")
    constraints = ("--constraint", str(env.constraints))
    # Build the project with the locked setuptools, not with the newest one; pip knows editable pyprojects since 21.3.
    pip_install(env, lock, *constraints, "pip>=21.3", "setuptools")
    pip_install(env, lock, *constraints, "--no-build-isolation", "--editable", ".[dev,bench,ray]")
    check_pair(env)


def is_complete(distribution: Path) -> bool:
    """Whether every file that the RECORD of a distribution names exists with its size."""
    record = distribution / "RECORD"
    if not record.is_file():
        return False
    with record.open(encoding="utf-8", newline="") as lines:
        files = [(distribution.parent / name, size) for name, _, size in csv.reader(lines)]
    return all(path.is_file() and (not size or path.stat().st_size == int(size)) for path, size in files)


def forget_incomplete(env: Environment) -> None:
    """Delete what a killed pip left half-written: pip would take it for installed."""
    for site in env.folder.glob("lib/python3*/site-packages"):
        # pip renames what it is about to replace to ~name
        broken = [path for path in site.glob("*.dist-info") if not is_complete(path)]
        for path in [*broken, *site.glob("~*")]:
            say(f"removing the incomplete {path.name}")
            remove(path)


def check_pair(env: Environment) -> None:
    """Import torch and torchvision together, and run a compiled operator of torchvision."""
    check = subprocess.run([str(env.python), "-I", "-c", PAIR_CHECK], capture_output=True, text=True, check=False)
    if check.returncode != 0:
        got = check.stdout.strip() or "torch and torchvision"
        cause = (check.stderr.strip().splitlines() or [f"exit code {check.returncode}"])[-1]
        raise SetupError(
            f"expected the matching pair that {env.constraints} names, got {got}, which do not work together "
            f"({cause}); delete {env.folder} and run the same command again; if that does not help, look in "
            "`pip config list` for an index or a wheel folder that offers another build of torch"
        )


# --- all of it


def set_up(env: Environment) -> None:
    """Make the environment ready for this clone, doing only what is not done."""
    check_named_python(env)
    if read_stamp(env) == wanted_stamp(env):
        return
    check_supported(python_version(), sys.executable, env)
    check_folder(env)
    with locked(env) as lock:
        stamp = read_stamp(env)  # the process that held the lock before may have done the work
        if not works(env):
            stamp = {}
            create(env, lock)
        elif not stamp:
            forget_incomplete(env)
        wanted = wanted_stamp(env)
        if stamp == wanted:
            return
        env.stamp.unlink(missing_ok=True)
        if stamp.get("key") == wanted["key"]:
            say(f"{env.folder} is shared: pointing it at {env.root}")
            pip_install(env, lock, "--no-deps", "--no-build-isolation", "--editable", ".")
        else:
            install(env, lock)
        env.stamp.write_text(json.dumps(wanted_stamp(env)), encoding="utf-8")


def main() -> int:
    """Set up; print the environment's Python, or say in one sentence why not."""
    env = Environment(ROOT, Path(os.path.abspath(os.environ.get("RELEG_VENV") or str(ROOT / ".venv"))))
    try:
        set_up(env)
    except (SetupError, OSError) as error:
        of_the_system = f"could not use {env.folder}: {error}; free it, or name another folder with RELEG_VENV"
        say(str(error) if isinstance(error, SetupError) else of_the_system)
        return 1
    except KeyboardInterrupt:
        say("interrupted; the same command continues")
        return 130
    print(env.python)
    return 0


if __name__ == "__main__":
    sys.exit(main())
