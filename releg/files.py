"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO


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


def remove_leftovers(folder: Path) -> None:
    """Delete the unfinished files that killed processes left in a folder, to which only this process is writing."""
    for path in folder.glob(".*.part"):
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of `path` at the end of the with statement, unless that fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        if error.errno is not None and error.filename is None:  # that of a full disk does not say where
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)
