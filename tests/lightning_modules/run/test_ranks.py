"""Who writes, and what each rank gets; tests/faults/test_ddp.py trains on two ranks."""

import os
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from lightning_modules.run import ranks
from lightning_modules.run.parent import PARENT_VARIABLE


@pytest.mark.parametrize(("rank", "node", "first"), [(0, "0", True), (1, "0", False), (0, "1", False)])
def test_one_process_of_all_machines_is_the_first(
    rank: int, node: str, first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rank_zero_only, "rank", rank)
    monkeypatch.setenv("NODE_RANK", node)
    assert ranks.is_first() == first


def share(devices: int, monkeypatch: pytest.MonkeyPatch, **variables: str) -> tuple[int, str | None]:
    """Threads of a rank, and the process that the ranks started by it end with."""
    for name in (PARENT_VARIABLE, "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, "put back afterwards")
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        ranks.share_machine(cast(Any, SimpleNamespace(num_devices=devices, num_nodes=2)))
        return torch.get_num_threads(), os.environ.get(PARENT_VARIABLE)
    finally:
        torch.set_num_threads(before)


def test_the_cores_of_a_machine_are_divided_among_its_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert share(1, monkeypatch) == (4, None)
    assert share(2, monkeypatch) == (2, str(os.getpid()))
    assert share(8, monkeypatch) == (1, str(os.getpid()))
    assert share(2, monkeypatch, OMP_NUM_THREADS="4") == (4, str(os.getpid()))
    assert share(2, monkeypatch, LOCAL_RANK="1") == (2, None)


def test_alone_a_process_is_its_own_mean_and_waits_for_nobody() -> None:
    value = torch.tensor([1.0, 2.0])
    ranks.mean_over_ranks_([value])
    assert value.tolist() == [1.0, 2.0]
    with ranks.others_wait():
        pass
    assert not ranks.is_about_another_rank(RuntimeError("gloo: Connection closed by peer")), "there is no other rank"
