"""What the program tells its user: sentences along the way, progress, and the sentence that an error ends it with."""

from __future__ import annotations

import logging
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

from jsonargparse import ArgumentError
from pytorch_lightning.utilities.exceptions import MisconfigurationException, SIGTERMException
from pytorch_lightning.utilities.rank_zero import rank_zero_only
from tqdm import tqdm

from lightning_modules.run import ranks

# Mistakes of the user and of the machine. Anything else is a mistake of the program and has a traceback.
USER_ERRORS = (ArgumentError, ValueError, FloatingPointError, OSError, MisconfigurationException)
SECONDS_FOR_RANK_0 = 10.0  # to end
SECONDS_BETWEEN_LINES = 15.0  # of progress, where there is no terminal
SECONDS_BETWEEN_REFRESHES = 0.2  # of a bar on a terminal
AGAIN = "the same command continues from the last checkpoint, if there is one"
SIGTERM_EXIT_CODE = 143  # as shells give it

logger = logging.getLogger("releg")


@rank_zero_only
def say(sentence: str) -> None:
    """Print one line on standard error, from rank 0 only."""
    logger.info(sentence)


class Lines:
    """A file for a progress bar where there is no terminal: each refresh of the bar is a line of its own."""

    def write(self, text: str) -> None:
        """Say what the bar shows."""
        if text.strip():
            say(" ".join(text.split()))


def progress_bar(what: str, total: int | None, unit: str, leave: bool = True, **options: Any) -> tqdm[Any]:
    """A bar on a terminal, a line now and then elsewhere.

    Args:
        what: is done.
        total: number of units, if it is known.
        unit: its plural after a space, for the speed.
        leave: whether a bar stays on the terminal when it is done.
        options: of tqdm.
    """
    is_terminal = sys.stderr.isatty()
    return tqdm(
        desc=what, total=total, unit=unit, file=sys.stderr if is_terminal else Lines(), dynamic_ncols=is_terminal,
        leave=leave and is_terminal, delay=0 if is_terminal else 1e-9,  # no line before the first number
        position=None if is_terminal else 0,  # beside another bar, tqdm would move a cursor that is not there
        mininterval=SECONDS_BETWEEN_REFRESHES if is_terminal else SECONDS_BETWEEN_LINES, **options,
    )  # fmt: skip


def quieten() -> None:
    """Keep what tells the user something, drop Lightning's notes about itself."""
    threading.excepthook = lambda ended: say(f"a thread failed ({ended.exc_type.__name__}: {ended.exc_value})")
    logging.basicConfig(format="%(message)s")
    logging.getLogger("releg").setLevel(logging.INFO)
    for name in ("lightning.pytorch", "pytorch_lightning", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    for name in ("pytorch_lightning.utilities.rank_zero", "lightning_fabric.utilities.seed"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="pytorch_lightning")
    warnings.filterwarnings("ignore", module="lightning_fabric")


def answered(run: Callable[[], int], program: str = "releg") -> int:
    """Run, and return the exit code: that of `run`, 2 after a user's mistake, 130 or 143 if a signal ended it."""
    try:
        return run()
    except KeyboardInterrupt:
        return _ended(f"{program}: interrupted; {AGAIN}", 130)
    except SIGTERMException:
        return _ended(f"{program}: ended by SIGTERM; {AGAIN}", SIGTERM_EXIT_CODE)
    except SystemExit as end:
        if end.code == 1:  # what Lightning makes of Ctrl-C
            return _ended(f"{program}: interrupted; {AGAIN}", 130)
        return int(end.code or 0)
    except USER_ERRORS as error:
        return complain(one_sentence(error), program)
    except (RuntimeError, MemoryError) as error:
        if is_out_of_memory(error):
            return complain(f"out of memory, expected settings that fit this machine; {AGAIN}", program)
        if isinstance(error, RuntimeError) and ranks.is_about_another_rank(error):
            return complain(f"another rank died; see its message nearby; {AGAIN}", program)
        raise


def is_out_of_memory(error: Exception) -> bool:
    """Whether the machine, or its GPU, has too little memory; torch says so by errors of its own."""
    words = ("out of memory", "can't allocate memory", "not enough memory")  # an illegal access of memory is a bug
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(word in str(error) for word in words)
    )


def complain(sentence: str, program: str = "releg") -> int:
    """Print the sentence from one rank; the others wait and end with rank 0. Returns exit code 2."""
    if not ranks.is_first():
        time.sleep(SECONDS_FOR_RANK_0)
    print(f"{program}: {sentence}", file=sys.stderr)
    return 2


def _ended(sentence: str, code: int) -> int:
    if ranks.is_first():
        print(sentence, file=sys.stderr)
    return code


def one_sentence(error: BaseException) -> str:
    """An error's text on one line."""
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        what = error.filename or "its output"
        text = f"cannot use {what} ({error.strerror}), expected a file or folder that works; correct that; {AGAIN}"
    return printable(" ".join(text.split()) or type(error).__name__)


def printable(text: str) -> str:
    """The text, in which characters that would do something to the terminal are spelt out."""
    return "".join(letter if letter.isprintable() or letter == "\n" else repr(letter)[1:-1] for letter in text)
