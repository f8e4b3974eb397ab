"""What the program tells its user: sentences along the way, and the one it ends with, never a traceback."""

from __future__ import annotations

import logging
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from jsonargparse import ArgumentError
from pytorch_lightning.utilities.exceptions import MisconfigurationException
from pytorch_lightning.utilities.rank_zero import rank_zero_only
from tqdm import tqdm

from lightning_modules.command_line.error_sentences import is_out_of_memory, mistake_of_the_program, one_sentence
from lightning_modules.run import ranks

# Mistakes of the user and of the machine. Anything else is a mistake of the program.
USER_ERRORS = (ArgumentError, ValueError, FloatingPointError, OSError, MisconfigurationException)
SECONDS_FOR_RANK_0 = 10.0  # to end
SECONDS_BETWEEN_LINES = 15.0  # of progress, where there is no terminal

logger = logging.getLogger("releg")
_voice = threading.Lock()
_has_ended = threading.Event()


class EndedEarlyError(BaseException):
    """A run that ended before it was finished, for a reason that is nobody's mistake.

    Args:
        sentence: what happened and how to go on.
        code: the exit code.
    """

    def __init__(self, sentence: str, code: int) -> None:
        super().__init__(sentence)
        self.code = code


@rank_zero_only
def say(sentence: str) -> None:
    """Print one line on standard error, from rank 0 only."""
    logger.info(sentence)


@contextmanager
def showing(what: str, total: int, tell: Callable[[str], None]) -> Iterator[Callable[[int], None]]:
    """A progress bar on a terminal, a line now and then elsewhere; yields the function that advances it."""
    started = last = time.monotonic()
    done = 0
    with tqdm(total=total, desc=what, unit="image", leave=False, disable=not sys.stderr.isatty()) as bar:

        def move(images: int) -> None:
            nonlocal done, last
            done += images
            bar.update(images)
            now = time.monotonic()
            if bar.disable and now - last > SECONDS_BETWEEN_LINES and done < total:
                last = now
                left = (now - started) / done * (total - done)
                tell(f"{what}: {done} of {total} images, {left / 60:.1f} min left")

        yield move
    tell(f"{what}: {total} images in {time.monotonic() - started:.1f} s")


def quieten() -> None:
    """Keep what tells the user something, drop Lightning's notes about itself."""
    _has_ended.clear()
    threading.excepthook = _tell_of_thread
    logging.basicConfig(format="%(message)s")
    logging.getLogger("releg").setLevel(logging.INFO)
    for name in ("lightning.pytorch", "pytorch_lightning", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    for name in ("pytorch_lightning.utilities.rank_zero", "lightning_fabric.utilities.seed"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="pytorch_lightning")
    warnings.filterwarnings("ignore", module="lightning_fabric")


def _tell_of_thread(ended: threading.ExceptHookArgs) -> None:
    """Report a thread that failed. TensorBoard writes from one, and raises its error again in the main thread."""
    name = ended.thread.name if ended.thread else "without a name"
    with _voice:
        if not _has_ended.is_set():
            say(f"background thread {name} failed ({ended.exc_type.__name__}: {ended.exc_value})")


def answered(run: Callable[[], int], program: str = "releg") -> int:
    """Run, and return the exit code: that of `run`, 2 after a user's mistake, 130 if interrupted, 1 after a bug."""
    try:
        try:
            return run()
        finally:
            sys.stdout.flush()  # an error is told in a sentence, and not by Python as it ends
    except KeyboardInterrupt:
        return _interrupted(program)
    except SystemExit as end:
        if end.code == 1:  # what Lightning makes of Ctrl-C
            return _interrupted(program)
        raise
    except EndedEarlyError as end:
        if ranks.is_first():
            _say_last(f"{program}: {end}")
        return end.code
    except USER_ERRORS as error:
        return complain(one_sentence(error), program)
    except Exception as error:
        if is_out_of_memory(error):
            return complain(one_sentence(error), program)
        if isinstance(error, RuntimeError) and ranks.is_about_another_rank(error):
            return complain(
                "another rank died; see its message nearby, then run the same command again; it resumes from the last "
                "checkpoint",
                program,
            )
        complain(mistake_of_the_program(error), program)
        return 1


def complain(sentence: str, program: str = "releg") -> int:
    """Print the sentence from one rank; the others wait and end with rank 0. Returns exit code 2."""
    if not ranks.is_first():
        time.sleep(SECONDS_FOR_RANK_0)
    _say_last(f"{program}: {_on_one_line(sentence)}")
    return 2


def _interrupted(program: str) -> int:
    if ranks.is_first():
        _say_last(f"{program}: interrupted; the same command continues from the last checkpoint, if there is one")
    return 130


def _say_last(sentence: str) -> None:
    """Print the line that a command ends with: threads in the background keep quiet from now on."""
    try:
        sys.stdout.flush()
    except OSError:
        sys.stdout = None  # on a full disk, say: Python would try once more as it ends
    with _voice:
        _has_ended.set()
        sys.stderr.write(f"{sentence}\n")  # in one call, so that nothing comes between
        sys.stderr.flush()


def _on_one_line(text: str) -> str:
    """Spell out characters that would end the line, or do something to the terminal."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
