"""One run in several processes, its ranks (DDP): who writes, who waits, what is averaged."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities.rank_zero import rank_zero_only
from torch import Tensor, distributed

from lightning_modules.run import parent

LAUNCHED = frozenset({"MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK"})  # the user, or another launcher, says where to meet
_meeting_points: list[distributed.TCPStore] = []  # open as long as the process lives
AS_LONG_AS_IT_TAKES = timedelta(days=10_000)


def is_first() -> bool:
    """Whether this process is rank 0, the one that writes. Known before a trainer exists."""
    rank = getattr(rank_zero_only, "rank", 0)  # Lightning reads it from the environment of any launcher
    return rank == 0 and os.environ.get("NODE_RANK", "0") == "0"


def follow_launcher() -> None:
    """End this rank together with the one that started it, however that one ends."""
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
        if trainer.num_nodes == 1 and not LAUNCHED.intersection(os.environ):
            _meet_on_loopback()


def _meet_on_loopback() -> None:
    """Let the ranks of this machine meet where no other machine can connect; torch's own store listens everywhere.

    A store that torch opens later at the same port, in this process, is served by this one.
    """
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        store = distributed.TCPStore(
            "127.0.0.1",
            port,
            is_master=True,
            wait_for_workers=False,
            multi_tenant=True,
            master_listen_fd=listener.detach(),
        )
    _meeting_points.append(store)
    os.environ.update({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})
    loopback = next((name for _, name in socket.if_nameindex() if name in ("lo", "lo0")), None)
    if loopback is not None:
        for library in ("GLOO", "NCCL"):
            os.environ.setdefault(f"{library}_SOCKET_IFNAME", loopback)


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
