"""Keeps compiled code on disk for the next process, in a folder that nobody else can write to, since it gets run.

Each file ends with a digest of its content, which is checked before anything in the file is used.
"""

from __future__ import annotations

import glob
import hashlib
import io
import logging
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numba
from numba import cfunc, types
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.ccallback import CFunc
from numba.core.errors import NumbaError

SIGNATURE = types.void(types.int64)
config: Any = numba.config  # set by environment variables

logger = logging.getLogger("releg")


def compile_kept(function: Callable[[int], None], options: Mapping[str, Any]) -> Any:
    """Compile the function to a C function, or load it from disk if it is there; unreadable files are replaced.

    The folder is numba's choice, __pycache__ or NUMBA_CACHE_DIR, if others cannot write to it; else the user's own.
    """
    for folder in (config.CACHE_DIR, str(user_folder())):
        with _cache_in(folder):
            kept = _open(function)
            if kept is not None and is_private(Path(kept.cache_path)):
                return _load_or_compile(function, options, kept)
    logger.warning("compiled code is not kept, since other users can write to each folder for it; compiling again")
    return cfunc(SIGNATURE, **options)(function)


def user_folder() -> Path:
    """The user's cache folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "releg"


def is_private(folder: Path) -> bool:
    """Whether only this user, root and the owner of releg can write to the folder and the code in it."""
    if not hasattr(os, "getuid"):
        return True
    is_closed = not folder.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    return all(map(_is_trusted, [folder] if is_closed else [folder, *folder.glob("*.nb?")]))


def _is_trusted(path: Path) -> bool:
    status = path.stat()
    owners = (os.getuid(), 0, Path(__file__).stat().st_uid)
    return status.st_uid in owners and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _load_or_compile(function: Callable[[int], None], options: Mapping[str, Any], kept: FunctionCache) -> Any:
    made: Any = CFunc(function, (SIGNATURE.args, SIGNATURE.return_type), {}, dict(options))
    made._cache = kept
    try:
        made.compile()
    except NumbaError:
        raise
    except Exception as error:  # a wrong digest, or whatever else a file that cannot be used leads to
        logger.warning("compiled code in %s is damaged (%s); compiling it again", kept.cache_path, error)
        kept.flush()
        made.compile()
    return made


class _CheckedCache(FunctionCache):
    """numba's cache of a function, in files with a digest."""

    def __init__(self, function: Callable[[int], None]) -> None:
        super().__init__(function)
        name = f"{self._impl.filename_base}.sha256"  # numba's own files have the first part only
        self._cache_file = _CheckedFiles(self.cache_path, name, self._impl.locator.get_source_stamp())


class _CheckedFiles(IndexDataCacheFile):
    """numba's index and files of code. Unpickling stops before the digest at the end, as numba reads them."""

    def flush(self) -> None:
        """Delete all of them."""
        for path in Path(self._cache_path).glob(f"{glob.escape(Path(self._index_name).stem)}.*nb?"):
            path.unlink(missing_ok=True)

    def _load_index(self) -> Any:
        if Path(self._index_path).exists():
            _check(Path(self._index_path))
        return super()._load_index()

    def _load_data(self, name: str) -> Any:
        _check(Path(self._data_path(name)))
        return super()._load_data(name)

    @contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[BinaryIO]:
        with super()._open_for_write(filepath) as file, io.BytesIO() as content:
            yield content
            file.write(content.getvalue() + hashlib.sha256(content.getvalue()).digest())


def _check(path: Path) -> None:
    """Raise ValueError unless the file ends with the digest of what comes before."""
    size = hashlib.sha256().digest_size
    whole = path.read_bytes()
    if hashlib.sha256(whole[:-size]).digest() != whole[-size:]:
        raise ValueError(f"{path.name} does not fit its digest")


def _open(function: Callable[[int], None]) -> FunctionCache | None:
    """numba's files for the function; if it has to make a folder, nobody else gets access to it."""
    mask = os.umask(0o077)
    try:
        return _CheckedCache(function)
    except RuntimeError:  # there is no folder to write to
        return None
    finally:
        os.umask(mask)


@contextmanager
def _cache_in(folder: str) -> Iterator[None]:
    """Let numba keep code below the folder; without a folder, in its default place."""
    before, config.CACHE_DIR = config.CACHE_DIR, folder
    try:
        yield
    finally:
        config.CACHE_DIR = before
