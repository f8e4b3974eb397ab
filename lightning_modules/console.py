"""One voice for what the program tells its user."""

import logging

from pytorch_lightning.utilities.rank_zero import rank_zero_only

logger = logging.getLogger("releg")


@rank_zero_only
def say(sentence: str) -> None:
    """One line on standard error, from rank 0 only."""
    logger.info(sentence)
