"""One run in several processes, its ranks (DDP): who writes, who waits, what is averaged."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities.rank_zero import rank_zero_only
from torch import Tensor, distributed

from lightning_modules.run import parent

AS_LONG_AS_IT_TAKES = timedelta(days=10_000)


def is_first() -> bool:
    """Whether this process is rank 0, the one that writes. Known before a trainer exists."""
    rank = getattr(rank_zero_only, "rank", 0)  # Lightning reads it from the environment of any launcher
    return rank == 0 and os.environ.get("NODE_RANK", "0") == "0"


def follow_launcher() -> None:
    """Make a rank that another one started end with it, however that ends."""
    if os.environ.get("LOCAL_RANK", "0") != "0":
        parent.end_with(int(os.environ.get(parent.PARENT_VARIABLE) or os.getppid()))


def share_machine(trainer: pl.Trainer) -> None:
    """Divide the cores among the ranks of this machine; ranks started later inherit the settings.

    If the user set OMP_NUM_THREADS, it counts per rank.
    """
    if trainer.num_devices == 1:
        return
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, torch.get_num_threads() // trainer.num_devices))
    if os.environ.get("LOCAL_RANK", "0") == "0":
        os.environ[parent.PARENT_VARIABLE] = str(os.getpid())


def mean_over_ranks_(values: Sequence[Tensor]) -> None:
    """Replace each tensor, in place, by its mean over the ranks, with one message for all."""
    if not values or not _are_several():
        return
    flat = torch.cat([value.reshape(-1) for value in values])
    distributed.all_reduce(flat)
    flat /= distributed.get_world_size()
    for value, mean in zip(values, flat.split([value.numel() for value in values]), strict=True):
        value.copy_(mean.view_as(value))


@contextmanager
def others_wait() -> Iterator[None]:
    """Let the other ranks wait for rank 0, for hours if need be; training's own collectives would time out."""
    if not _are_several():
        yield
        return
    group = distributed.new_group(backend="gloo", timeout=AS_LONG_AS_IT_TAKES)
    assert isinstance(group, distributed.ProcessGroup)  # all ranks are in it
    yield
    distributed.barrier(group)
    distributed.destroy_process_group(group)


def is_about_another_rank(error: RuntimeError) -> bool:
    """Whether an error only says that another rank is gone."""
    words = ("gloo", "NCCL", "Connection closed by peer", "Connection reset by peer", "Broken pipe")
    return isinstance(error, distributed.DistError) or (_are_several() and any(word in str(error) for word in words))


def _are_several() -> bool:
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1
