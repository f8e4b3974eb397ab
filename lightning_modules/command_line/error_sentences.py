"""Errors as one sentence for the user; loads nothing heavy."""

from __future__ import annotations

import errno
import os
import re
import tempfile
import traceback
from pathlib import Path

NO_ROOM = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)
FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
WRONG_KIND = (errno.EISDIR, errno.ENOTDIR)
AGAIN = "run the same command again; it resumes from the last checkpoint, if there is one"
NOT_ENOUGH_MEMORY = (
    "out of memory, expected settings that fit this machine; choose a smaller batch_size, fewer units or fewer "
    "samples; the same command continues from the last checkpoint, if there is one"
)


def one_sentence(error: BaseException) -> str:
    """An error's text on one line."""
    if is_out_of_memory(error):
        return NOT_ENOUGH_MEMORY
    if isinstance(error, OSError) and error.errno is not None and error.strerror:
        return _about_a_file(error)
    lines = [re.sub(r"^(-+\s+|-+$)", "", line.strip()) for line in str(error).splitlines()]  # without bullets
    lines = [line for line in lines if line]
    return " ".join(lines) if lines else type(error).__name__


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the machine, or its GPU, has too little memory; torch says so by errors of its own."""
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    words = ("can't allocate memory", "not enough memory", "out of memory")
    return isinstance(error, RuntimeError) and any(word in str(error) for word in words)


def _about_a_file(error: OSError) -> str:
    name = error.filename or "its output"
    if error.errno in NO_ROOM:
        return f"cannot write {name} ({error.strerror}), expected room for it; free some disk space and {AGAIN}"
    if error.errno in FORBIDDEN:
        return f"cannot use {name} ({error.strerror}), expected one that this user may use; change that and {AGAIN}"
    if error.errno in WRONG_KIND:
        return f"{name} is a folder where a file belongs, or the reverse ({error.strerror}); move it away and {AGAIN}"
    return f"{name}: {error.strerror}, expected a file or folder that works; correct that and {AGAIN}"


def mistake_of_the_program(error: Exception) -> str:
    """One sentence about a bug; the traceback goes to a file."""
    path = Path(tempfile.gettempdir()) / f"releg-error-{os.getpid()}.txt"
    path.write_text("".join(traceback.format_exception(error)))
    return (
        f"this is a bug in releg ({type(error).__name__}: {one_sentence(error)}); the same command continues "
        f"from the last checkpoint, if there is one; {path} says where it happened: please report it"
    )
