"""The first moments of a command, before anything heavy is loaded."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from lightning_modules import ROOT


def current_folder() -> str:
    """Its path; that of the program if it has been deleted."""
    try:
        return os.getcwd()
    except OSError:
        return str(ROOT)


def current_folder_last() -> None:
    """Look for modules in the current folder after all that is installed; `python -m` looks there first.

    So a file there that is named like a package does not take its place, and classes of the user's own are still found.
    """
    here = current_folder()
    place = None
    if sys.path[0] in ("", here):
        del sys.path[0]
    if here == str(ROOT):  # PYTHONPATH may name it too; other clones of the program must stay behind it
        sys.path[:] = [entry for entry in sys.path if entry != here]
        place = next((i for i, entry in enumerate(sys.path) if Path(entry, __package__).is_dir()), None)
    if here not in sys.path:
        sys.path.insert(len(sys.path) if place is None else place, here)


@contextmanager
def loading(program: str) -> Iterator[None]:
    """Answer Ctrl-C in one line: libraries being imported would answer it in their own ways."""

    def end(number: int, frame: FrameType | None) -> NoReturn:
        if os.environ.get("LOCAL_RANK", "0") == "0":
            os.write(2, f"{program}: interrupted while loading; nothing was begun\n".encode())
        os._exit(128 + number)

    is_ours = threading.current_thread() is threading.main_thread()
    if not is_ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
