"""Make the environment that tests and experiments run in, and print the path of its Python.

Every script of the project starts with this line, and nothing else installs anything:

    python=$("${RELEG_PYTHON:-python3}" tests/environment.py)

RELEG_PYTHON names the interpreter that the environment is made with, RELEG_VENV the environment's folder (`.venv` in
the project's root if unset); several clones may share one. A stamp in the folder says that everything in it was
installed and checked. Without a stamp, as after an interruption, an installation continues where it stopped.

Standard library only. The file must also load in an old Python 3, so that its user gets a sentence instead of a
traceback: annotations that need a newer one stand in quotes.
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
from typing import Iterator, NamedTuple, TextIO  # noqa: UP035 -- collections.abc.Iterator[...] fails before 3.9

ROOT = Path(__file__).resolve().parent.parent

# torchvision's compiled operators load only beside the torch that they were built for; nms is one of them.
PAIR_CHECK = """
from importlib.metadata import version
print("torch", version("torch"), "and torchvision", version("torchvision"), flush=True)
import torch, torchvision
torchvision.ops.nms(torch.zeros(1, 4), torch.zeros(1), 0.5)
"""


class SetupError(Exception):
    """One sentence for the user: what was expected, what was got, how to mend it."""


class Environment(NamedTuple):
    """A clone of the project and the folder of the environment that it uses."""

    root: Path
    folder: Path

    @property
    def python(self) -> Path:
        """The environment's interpreter."""
        return self.folder / "bin" / "python"

    @property
    def pyproject(self) -> Path:
        """What the project needs."""
        return self.root / "pyproject.toml"

    @property
    def constraints(self) -> Path:
        """The exact versions."""
        return self.root / "tests" / "constraints.txt"

    @property
    def stamp(self) -> Path:
        """Present only while everything in the folder is installed and checked."""
        return self.folder / "releg-stamp.json"

    @property
    def lock(self) -> Path:
        """Held while installing; its presence also says that the folder was made here."""
        return self.folder / "releg.lock"


def say(message: str) -> None:
    """Tell the user something; standard output carries only the answer."""
    print(f"releg set-up: {message}", file=sys.stderr, flush=True)


# --- which Python


def made_with(folder: Path) -> str:
    """The version of Python that an environment was made with ("3.11.7"); empty if the folder holds no environment."""
    config = folder / "pyvenv.cfg"
    found = config.is_file() and re.search(r"^version(?:_info)? *= *(\S+)", config.read_text(), re.MULTILINE)
    return found.group(1) if found else ""


def running() -> str:
    """The version of Python that runs this file."""
    return ".".join(str(number) for number in sys.version_info[:3])


def minor(version: str) -> str:
    """3.11 for 3.11.7."""
    return ".".join(version.split(".")[:2])


def check_supported(version: str, where: str, env: Environment) -> None:
    """Refuse a Python outside pyproject's requires-python."""
    found = re.search(r'^requires-python = ">=3\.(\d+),<3\.(\d+)"', env.pyproject.read_text("utf-8"), re.MULTILINE)
    if not found:
        raise SetupError(f'expected a line like requires-python = ">=3.10,<3.13" in {env.pyproject}, got none; add it')
    supported = [f"3.{number}" for number in range(int(found.group(1)), int(found.group(2)))]
    if minor(version) not in supported:
        raise SetupError(
            f"expected Python {supported[0]} to {supported[-1]}, got {version} ({where}); "
            "name another with RELEG_PYTHON=/path/to/python"
        )


def check_named_python(env: Environment) -> None:
    """Refuse to use an environment of another Python than the one that the user asked for."""
    version = made_with(env.folder)
    if os.environ.get("RELEG_PYTHON") and version and minor(version) != minor(running()):
        raise SetupError(
            f"expected an environment of Python {minor(running())}, which RELEG_PYTHON names, got one of {version} in "
            f"{env.folder}; name another folder with RELEG_VENV, delete this one, or unset RELEG_PYTHON"
        )


# --- the stamp


def key(env: Environment) -> str:
    """A hash of all that decides what is installed."""
    digest = hashlib.sha256()
    for part in (env.pyproject.read_bytes(), env.constraints.read_bytes(), made_with(env.folder).encode()):
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()


def read_stamp(env: Environment) -> "dict[str, str]":
    """The stamp; empty if there is none, or if it or the interpreter is unusable."""
    try:
        stamp = json.loads(env.stamp.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) and os.access(str(env.python), os.X_OK) else {}


def write_stamp(env: Environment) -> None:
    """Write the stamp under another name first: it is there whole or not at all."""
    partial = env.stamp.with_suffix(".partial")
    partial.write_text(json.dumps({"key": key(env), "root": str(env.root)}) + "\n", encoding="utf-8")
    partial.replace(env.stamp)


def is_ready(env: Environment) -> bool:
    """Whether nothing is left to do for this clone."""
    return read_stamp(env) == {"key": key(env), "root": str(env.root)}


# --- the folder


@contextmanager
def locked(env: Environment) -> Iterator[TextIO]:
    """Hold the folder's lock; say so while waiting for it."""
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
    """Refuse a folder with other things in it: whatever stands in a broken environment is deleted."""
    if env.folder.exists() and not env.folder.is_dir():
        raise SetupError(f"expected a folder, got the file {env.folder}; name a folder with RELEG_VENV")
    is_empty = not env.folder.exists() or not any(env.folder.iterdir())
    if made_with(env.folder):
        check_supported(made_with(env.folder), str(env.python), env)
    if not (is_empty or env.lock.exists() or works(env)):
        raise SetupError(
            f"expected an empty folder or a working environment, got {env.folder}, which is neither; "
            "name another with RELEG_VENV, or delete it"
        )


def create(env: Environment, lock: TextIO) -> None:
    """Make the environment anew, from the Python that runs this file."""
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
    """Delete a file, a link or a whole folder."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(str(path))
    else:
        path.unlink()


# --- installing


def run(command: "list[str]", env: Environment, lock: TextIO) -> int:
    """Run a command in the clone's root; what it prints goes to standard error.

    The command inherits the lock: should this process be killed, the next set-up still waits until the command ends.
    """
    variables = dict(os.environ, PIP_USER="0")
    return subprocess.run(
        command, cwd=str(env.root), env=variables, stdout=sys.stderr.fileno(), pass_fds=[lock.fileno()], check=False
    ).returncode


def pip_install(env: Environment, lock: TextIO, arguments: "list[str]") -> None:
    """Run pip install inside the environment."""
    options = ["--no-input", "--disable-pip-version-check"]
    code = run([str(env.python), "-I", "-m", "pip", "install", *options, *arguments], env, lock)
    if code != 0:
        raise SetupError(
            f"pip could not install into {env.folder} (exit code {code}, its reason stands above); check the network "
            "and the disk (6 GB are needed), then run the same command again: it continues"
        )


def install(env: Environment, lock: TextIO) -> None:
    """Install the exact versions and the project itself, editable."""
    say(f"installing into {env.folder}: about 6 GB, some minutes the first time")
    constraints = ["--constraint", str(env.constraints)]
    # The project is built by the locked setuptools, not by the newest one; pip knows editable pyprojects since 21.3.
    pip_install(env, lock, [*constraints, "pip>=21.3", "setuptools"])
    pip_install(env, lock, [*constraints, "--no-build-isolation", "--editable", ".[dev,bench,ray]"])


def install_clone(env: Environment, lock: TextIO) -> None:
    """Point the editable installation, and nothing else, at this clone."""
    say(f"{env.folder} is shared: pointing it at {env.root}")
    pip_install(env, lock, ["--no-deps", "--no-build-isolation", "--editable", "."])


def is_complete(distribution: Path) -> bool:
    """Whether every file that a distribution's RECORD names is there with its size."""
    record = distribution / "RECORD"
    if not record.is_file():
        return False
    with record.open(encoding="utf-8", newline="") as lines:
        for name, _, size in csv.reader(lines):
            path = distribution.parent / name
            if not path.is_file() or (size and path.stat().st_size != int(size)):
                return False
    return True


def forget_incomplete(env: Environment) -> None:
    """Make pip install again what a killed pip left half-written, which it would take for installed."""
    for site in env.folder.glob("lib/python3*/site-packages"):
        # pip moves what it is about to replace to names that begin with ~.
        broken = [path for path in site.glob("*.dist-info") if not is_complete(path)]
        for path in [*broken, *site.glob("~*")]:
            say(f"removing the incomplete {path.name}")
            remove(path)


def check_pair(env: Environment) -> None:
    """Import torch and torchvision together, and run one of torchvision's compiled operators."""
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
    if is_ready(env):
        return
    check_supported(running(), sys.executable, env)
    check_folder(env)
    with locked(env) as lock:
        stamp = read_stamp(env)  # whoever held the lock before may have done the work
        if not works(env):
            stamp = {}
            create(env, lock)
        elif not stamp:
            forget_incomplete(env)
        if stamp.get("key") != key(env):
            remove_stamp(env)
            install(env, lock)
            check_pair(env)
        elif stamp.get("root") != str(env.root):
            remove_stamp(env)
            install_clone(env, lock)
        write_stamp(env)


def remove_stamp(env: Environment) -> None:
    """From here on the environment counts as unfinished."""
    if env.stamp.exists():
        env.stamp.unlink()


def main() -> int:
    """Set up; print the environment's Python, or say in one sentence why not."""
    env = Environment(ROOT, Path(os.path.abspath(os.environ.get("RELEG_VENV") or str(ROOT / ".venv"))))
    try:
        set_up(env)
    except SetupError as error:
        say(str(error))
        return 1
    except OSError as error:
        say(f"could not use {env.folder}: {error}; free it, or name another folder with RELEG_VENV")
        return 1
    except KeyboardInterrupt:
        say("interrupted; the same command continues")
        return 130
    print(env.python)
    return 0


if __name__ == "__main__":
    sys.exit(main())
