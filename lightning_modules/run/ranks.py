"""One run in several processes, its ranks (DDP): who writes, and with whom they end."""

from __future__ import annotations

import os

from pytorch_lightning.utilities.rank_zero import rank_zero_only
from torch import distributed

from lightning_modules.run.parent import end_with


def is_first() -> bool:
    """Whether this process is rank 0, the one that writes. Known before a trainer exists."""
    rank = getattr(rank_zero_only, "rank", 0)  # Lightning reads it from the environment of any launcher
    return rank == 0 and os.environ.get("NODE_RANK", "0") == "0"


def follow_launcher() -> None:
    """End this rank together with the one that started it, however that one ends."""
    if os.environ.get("LOCAL_RANK", "0") != "0":
        end_with(os.getppid())


def is_about_another_rank(error: RuntimeError) -> bool:
    """Whether an error only says that another rank is gone."""
    words = ("gloo", "NCCL", "Connection closed by peer", "Connection reset by peer", "Broken pipe")
    is_several = distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1
    return isinstance(error, distributed.DistError) or (is_several and any(word in str(error) for word in words))
