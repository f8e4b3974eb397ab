"""The first moments of a command, before anything heavy is loaded."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from lightning_modules import ROOT

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PYTHONS_OWN = (signal.default_int_handler, signal.SIG_DFL)


def current_folder() -> str:
    """The path of the current folder, or of the program if the current folder has been deleted."""
    try:
        return os.getcwd()
    except OSError:
        return str(ROOT)


def not_from_here() -> None:
    """Import nothing from the current folder, where `python -m` looks first: a file there may have a package's name.

    If it is the program's own folder, it moves to the end of the import path, but stays before other clones.
    """
    here = current_folder()
    if sys.path[0] in ("", here):
        del sys.path[0]
    if here == str(ROOT):  # PYTHONPATH may name it too; other clones of the program must stay behind it
        sys.path[:] = [entry for entry in sys.path if entry != here]
        place = next(
            (i for i, entry in enumerate(sys.path) if Path(entry, "lightning_modules").is_dir()), len(sys.path)
        )
        sys.path.insert(place, here)


def find_own_modules(words: list[str]) -> None:
    """Add the current folder to the end of the import path, but only if the user names a class that is in it.

    Libraries try to import packages that may not be installed. If the folder were always searched, a file of such a
    name would be run even by a command that only reads a checkpoint. The user names classes on the command line, in the
    configs given there and, with --trust, in the config beside a checkpoint.
    """
    files = [*words, *(os.path.join(os.path.dirname(word), "config.yaml") for word in words if "--trust" in words)]
    configs = [Path(file) for file in files if file.endswith((".yaml", ".yml")) and os.path.isfile(file)]
    texts = [*words, *(re.sub("#.*", "", config.read_text(errors="replace")) for config in configs)]
    for module in re.findall(r"(?<![\w./-])([A-Za-z_]\w*(?:\.\w+)*)\.[A-Z]", "\n".join(texts)):  # of module.Class
        path = os.path.join(current_folder(), *module.split("."))
        if os.path.isfile(f"{path}.py") or os.path.isfile(f"{path}/__init__.py"):
            sys.path.append(current_folder())


@contextmanager
def loading(program: str) -> Iterator[None]:
    """Answer Ctrl-C, SIGTERM and SIGHUP in one line: libraries being imported would answer in their own ways."""

    def end(number: int, frame: FrameType | None) -> NoReturn:
        if os.environ.get("LOCAL_RANK", "0") == "0":
            what = "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"
            os.write(2, f"{program}: {what} while loading; nothing was started\n".encode())
        os._exit(128 + number)

    is_main = threading.current_thread() is threading.main_thread()
    handlers = {number: signal.getsignal(number) for number in SIGNALS if is_main}
    before = {number: each for number, each in handlers.items() if each in PYTHONS_OWN}  # ignored ones stay ignored
    for number in before:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
