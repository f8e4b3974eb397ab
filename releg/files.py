"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import glob
import json
import math
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

SECONDS_TO_WRITE = 3600.0  # a file, at most


def write_atomically(path: Path, content: str | bytes) -> Path:
    """Write a file; its name appears, or changes, only when the content is whole on disk."""
    with replacing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)
    return path


def write_json(path: Path, content: Any, indent: int = 1) -> Path:
    """Write a JSON file. A number that is not finite becomes null: JSON has no word for it, and many readers fail."""
    text = json.dumps(without_infinities(content), indent=indent, ensure_ascii=False, allow_nan=False)
    return write_atomically(path, text + "\n")


def without_infinities(value: Any) -> Any:
    """The same value with None in place of every number that is not finite."""
    if isinstance(value, dict):
        return {key: without_infinities(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_infinities(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@contextlib.contextmanager
def readable(path: Path, expected: str, fix: str) -> Iterator[None]:
    """Turn whatever a missing or damaged file raises into a ValueError of one sentence."""
    try:
        yield
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path} cannot be read ({type(error).__name__}: {error}), expected {expected}; {fix}"
        ) from error


def check_writable(folder: Path) -> None:
    """Make the folder and raise OSError, with a sentence, if no file can be written there: now, not after hours."""
    try:
        write_atomically(folder / ".writable", "")
        (folder / ".writable").unlink()
    except OSError as error:
        raise OSError(
            f"cannot write to {folder} ({error.strerror}), expected a folder that can be written; name another one"
        ) from None


def remove_leftovers(folder: Path, name: str = "*", age: float = 0.0) -> None:
    """Delete the unfinished files that dead processes of this machine left in the folder.

    Args:
        folder: that only this machine is writing to, unless an age is given.
        name: only what was to become a file of this name.
        age: only what is older, in seconds.
    """
    for path in folder.glob(f".{name}.*.part"):
        writer = re.search(r"\.(\d+)\.part$", path.name)
        if writer and not _is_running(int(writer[1])):
            with contextlib.suppress(OSError):  # another process may delete it first
                if path.stat().st_mtime <= time.time() - age:
                    path.unlink()


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # of another user
        return True
    return True


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of `path` at the end of the with statement, unless that fails.

    Unfinished versions that dead processes left are deleted, unless another machine may still be writing one.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(path.parent, glob.escape(path.name), SECONDS_TO_WRITE)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
