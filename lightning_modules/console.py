"""One voice for what the program tells its user."""

import logging
import sys
import threading
import warnings

from pytorch_lightning.utilities.rank_zero import rank_zero_only

logger = logging.getLogger("releg")
_voice = threading.Lock()
_has_ended = threading.Event()


@rank_zero_only
def say(sentence: str) -> None:
    """One line on standard error, from rank 0 only."""
    logger.info(sentence)


def say_last(sentence: str) -> None:
    """The line on standard error that a command ends with: threads in the background keep quiet from now on."""
    with _voice:
        _has_ended.set()
        sys.stderr.write(f"{sentence}\n")  # at once, so that nothing comes between
        sys.stderr.flush()


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
    """TensorBoard writes from a thread, and raises what ended it in the main thread again."""
    name = ended.thread.name if ended.thread else "a thread"
    with _voice:
        if not _has_ended.is_set():
            say(f"{name} in the background has ended ({ended.exc_type.__name__}: {ended.exc_value})")
