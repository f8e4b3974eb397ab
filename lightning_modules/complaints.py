"""How the releg command ends when something is wrong: in one sentence, never in a traceback."""

from __future__ import annotations

import errno
import os
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from jsonargparse import ArgumentError
from pytorch_lightning.utilities.exceptions import MisconfigurationException

from lightning_modules.console import say_last
from lightning_modules.run import ranks

# Mistakes of the user and of the machine. Anything else is a mistake of the program.
USER_ERRORS = (ArgumentError, ValueError, FloatingPointError, OSError, MisconfigurationException)
NO_ROOM = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)
SECONDS_FOR_RANK_0 = 10.0  # to end


def answered(run: Callable[[], int]) -> int:
    """The exit code: that of `run`; 2 after a sentence about a mistake; 130 when interrupted; 1 if the program errs."""
    try:
        return run()
    except KeyboardInterrupt:
        return _interrupted()
    except SystemExit as end:
        if end.code == 1:  # what Lightning makes of Ctrl-C
            return _interrupted()
        raise
    except USER_ERRORS as error:
        return complain(one_sentence(error))
    except Exception as error:
        if isinstance(error, RuntimeError) and ranks.is_about_another_rank(error):
            return complain(
                "another rank of this run has ended, expected all to go on; what it said stands above or below; give "
                "the same command again, which continues from the last checkpoint"
            )
        complain(mistake_of_the_program(error))
        return 1


def mistake_of_the_program(error: Exception) -> str:
    """One sentence about it; the traceback is kept in a file."""
    return (
        f"the program made a mistake ({type(error).__name__}: {one_sentence(error)}); the same command continues "
        f"from the last checkpoint; {_keep(error)} says where it happened: please report it"
    )


def complain(sentence: str) -> int:
    """One sentence from one rank: what went wrong on all of them rank 0 tells, and the others end with it."""
    if not ranks.is_first():
        time.sleep(SECONDS_FOR_RANK_0)
    say_last(f"releg: {on_one_line(sentence)}")
    return 2


def on_one_line(text: str) -> str:
    """With characters that would end the line, or do something to the terminal, spelt out."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def one_sentence(error: BaseException) -> str:
    """An error's text on one line."""
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        return (
            f"cannot write {error.filename or 'what the run logs'} ({error.strerror}), expected room for it; free some "
            "disk space and give the same command again, which continues from the last checkpoint"
        )
    lines = [line.strip(" -\t") for line in str(error).splitlines() if line.strip(" -\t")]
    return " ".join(lines) if lines else type(error).__name__


def _interrupted() -> int:
    if ranks.is_first():
        say_last("releg: interrupted; the same command continues from the last checkpoint")
    return 130


def _keep(error: BaseException) -> Path:
    """The file with the traceback."""
    path = Path(tempfile.gettempdir()) / f"releg-error-{os.getpid()}.txt"
    path.write_text("".join(traceback.format_exception(error)))
    return path
