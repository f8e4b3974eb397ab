"""Make the environment that tests and experiments run in, and print the path of its Python.

Every script of the project starts with this line, and nothing else installs anything:

    python=$("${RELEG_PYTHON:-python3}" tests/environment.py)

RELEG_PYTHON is the interpreter to make the environment with, RELEG_VENV the folder of the environment (default: `.venv`
in the project's root); several clones can share one. A stamp in the folder says that everything in it is installed and
checked. Without a stamp, as after an interruption, pip goes on with what is missing.

Standard library only. The file must also load in an old Python 3, so that its user gets a sentence instead of a
traceback: annotations that need a newer one are in quotes.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from platform import python_version

ROOT = Path(__file__).resolve().parent.parent

# The compiled operators of torchvision load only with the torch that they were built for; nms is one of them.
PAIR_CHECK = "import torch, torchvision; torchvision.ops.nms(torch.zeros(1, 4), torch.zeros(1), 0.5)"


class SetupError(Exception):
    """One sentence for the user: expected, got, fix."""


def say(message: str) -> None:
    """Tell the user something; standard output carries only the answer."""
    print(f"releg set-up: {message}", file=sys.stderr, flush=True)


def minor_version() -> str:
    """3.11 for 3.11.7."""
    return ".".join(python_version().split(".")[:2])


def check_python(root: Path) -> None:
    """Refuse a Python outside pyproject's requires-python."""
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    ((low, above),) = re.findall(r'^requires-python = ">=3\.(\d+),<3\.(\d+)"', text, re.MULTILINE)
    if minor_version() not in [f"3.{minor}" for minor in range(int(low), int(above))]:
        raise SetupError(
            f"expected Python 3.{low} to 3.{int(above) - 1}, got {python_version()} ({sys.executable}); "
            "name another with RELEG_PYTHON=/path/to/python"
        )


def is_ready(root: Path, folder: Path) -> bool:
    """Whether everything that this clone wants is installed, with the Python that RELEG_PYTHON names, if it is set."""
    try:
        key, version = (folder / "releg-stamp").read_text(encoding="utf-8").split()
    except (OSError, ValueError):
        return False
    is_named = version == minor_version() or not os.environ.get("RELEG_PYTHON")
    return key == wanted_key(root) and is_named and os.access(str(folder / "bin" / "python"), os.X_OK)


def wanted_key(root: Path) -> str:
    """A hash of all that decides what is installed: requirements, exact versions, and the clone itself."""
    parts = (
        (root / "pyproject.toml").read_bytes(),
        (root / "tests" / "constraints.txt").read_bytes(),
        str(root).encode(),
    )
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()


def run(command: "list[str]", root: Path, otherwise: str) -> None:
    """Run a command in the root of the clone, with its output on standard error; SetupError if it fails."""
    if subprocess.run(command, cwd=root, stdout=sys.stderr.fileno(), check=False).returncode != 0:
        raise SetupError(f"{otherwise} (see above), then run the same command again: it continues")


def install(root: Path, folder: Path) -> None:
    """Install the exact versions and the project itself, editable; check that torch and torchvision match."""
    say(f"installing into {folder}: about 6 GB, some minutes the first time")
    run([sys.executable, "-m", "venv", str(folder)], root, "no environment could be made; install python3-venv")
    for unfinished in folder.glob("lib/python3*/site-packages/*.dist-info"):
        if not (unfinished / "RECORD").is_file():  # which a killed pip had not written yet
            shutil.rmtree(unfinished)
    python = str(folder / "bin" / "python")
    pip = [python, "-I", "-m", "pip", "install", "--no-input", "--constraint", str(root / "tests" / "constraints.txt")]
    # Build the project with the locked setuptools, not with the newest one; pip knows editable pyprojects since 21.3.
    for what in (["pip>=21.3", "setuptools"], ["--no-build-isolation", "--editable", ".[dev,bench,pyro,ray]"]):
        run([*pip, *what], root, f"pip could not install into {folder}; check the network and the disk")
    mismatch = f"torch and torchvision do not match; delete {folder}, or see what `pip config list` adds"
    run([python, "-I", "-c", PAIR_CHECK], root, mismatch)


def set_up(root: Path, folder: Path) -> None:
    """Make the environment ready for this clone, doing only what is not done."""
    if is_ready(root, folder):
        return
    check_python(root)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "releg.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # waits for another set-up, which may have done the work
        if not is_ready(root, folder):
            (folder / "releg-stamp").unlink(missing_ok=True)
            install(root, folder)
            (folder / "releg-stamp").write_text(f"{wanted_key(root)} {minor_version()}", encoding="utf-8")


def main() -> int:
    """Set up; print the environment's Python, or say in one sentence why not."""
    folder = Path(os.path.abspath(os.environ.get("RELEG_VENV") or str(ROOT / ".venv")))
    try:
        set_up(ROOT, folder)
    except (SetupError, OSError) as error:
        say(str(error))
        return 1
    except KeyboardInterrupt:
        say("interrupted; the same command continues")
        return 130
    print(folder / "bin" / "python")
    return 0


if __name__ == "__main__":
    sys.exit(main())
