"""One voice for what the program tells its user."""

import logging
import threading
import warnings

from pytorch_lightning.utilities.rank_zero import rank_zero_only

logger = logging.getLogger("releg")


@rank_zero_only
def say(sentence: str) -> None:
    """One line on standard error, from rank 0 only."""
    logger.info(sentence)


def quieten() -> None:
    """Keep what tells the user something, drop Lightning's notes about itself."""
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
    say(f"{name} in the background has ended ({ended.exc_type.__name__}: {ended.exc_value})")
