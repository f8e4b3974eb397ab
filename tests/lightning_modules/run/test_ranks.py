"""Who writes; tests/faults/test_ddp.py trains on two ranks."""

import pytest
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from lightning_modules.run import ranks


@pytest.mark.parametrize(("rank", "node", "first"), [(0, "0", True), (1, "0", False), (0, "1", False)])
def test_one_process_of_all_machines_is_the_first(
    rank: int, node: str, first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rank_zero_only, "rank", rank)
    monkeypatch.setenv("NODE_RANK", node)
    assert ranks.is_first() == first


def test_alone_a_process_blames_no_other_rank() -> None:
    assert not ranks.is_about_another_rank(RuntimeError("gloo: Connection closed by peer"))
