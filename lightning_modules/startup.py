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
    """Its path; that of the program if it has been deleted."""
    try:
        return os.getcwd()
    except OSError:
        return str(ROOT)


def not_from_here() -> None:
    """Import nothing from the current folder, where `python -m` looks first: a file there may have a package's name.

    The program's own folder comes after all that is installed.
    """
    here = current_folder()
    if sys.path[0] in ("", here):
        del sys.path[0]
    if here == str(ROOT):  # PYTHONPATH may name it too; other clones of the program must stay behind it
        sys.path[:] = [entry for entry in sys.path if entry != here]
        place = next((i for i, entry in enumerate(sys.path) if Path(entry, __package__).is_dir()), len(sys.path))
        sys.path.insert(place, here)


def find_own_modules(arguments: list[str]) -> None:
    """Import also from the current folder, after all that is installed, if the user names a module there.

    Otherwise a file there could be run by looking at a checkpoint: libraries try to import packages that are not
    installed. Modules are named by dotted paths on the command line, in the configs given there and, if the user trusts
    it, in the one beside a checkpoint.
    """
    here = current_folder()
    values = [word.partition("=")[2] if word.startswith("--") else word for word in arguments]
    files = [Path(value) for value in values if os.path.exists(value)]
    if "--trust" in arguments:
        files += [file.with_name("config.yaml") for file in files]
    texts = [value for value in values if not os.path.exists(value)]
    texts += [file.read_text(errors="replace") for file in files if file.suffix in (".yaml", ".yml") and file.is_file()]
    named = {name for text in texts for name in re.findall(r"\b([A-Za-z_]\w*)\.[A-Za-z_]", text)}
    if here not in sys.path and any(Path(here, name + end).exists() for name in named for end in ("", ".py")):
        sys.path.append(here)


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
    before = {number: each for number, each in handlers.items() if each in PYTHONS_OWN}  # others are ignored, or taken
    for number in before:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
