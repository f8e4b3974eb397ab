from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_modules.run import checkpoints
from lightning_modules.run.checkpoints import SafeCheckpointIO, find_newest, load_run_checkpoint
from releg.checkpoint_file import DamagedCheckpointError


def content(number: int) -> dict[str, object]:
    return {
        "identity": {},
        "state_dict": {"w": torch.arange(40.0) + number},
        "step": number,
        "nested": [1, (2.5, "x"), None, True],
    }


def write(path: Path, number: int = 0) -> Path:
    SafeCheckpointIO().save_checkpoint(content(number), path)
    return path


def test_what_is_saved_is_loaded_and_nothing_else_is_left(tmp_path: Path) -> None:
    loaded = load_run_checkpoint(write(tmp_path / "last.ckpt", 3))
    assert torch.equal(loaded["state_dict"]["w"], torch.arange(40.0) + 3)
    assert loaded["step"] == 3
    assert [p.name for p in tmp_path.iterdir()] == ["last.ckpt"]


def test_every_truncation_is_noticed(tmp_path: Path) -> None:
    path = write(tmp_path / "last.ckpt")
    whole = path.read_bytes()
    for size in [0, 1, 10, len(whole) // 3, len(whole) // 2, len(whole) - 100, len(whole) - 1]:
        path.write_bytes(whole[:size])
        with pytest.raises(DamagedCheckpointError, match=r"last\.ckpt"):
            load_run_checkpoint(path)


def test_flipped_bits_never_change_what_is_loaded_unnoticed(tmp_path: Path) -> None:
    path = write(tmp_path / "last.ckpt")
    whole = path.read_bytes()
    noticed = 0
    for position in range(0, len(whole), 7):
        damaged = bytearray(whole)
        damaged[position] ^= 0x10
        path.write_bytes(damaged)
        try:
            loaded = load_run_checkpoint(path)
        except DamagedCheckpointError:
            noticed += 1
        else:  # padding and zip headers carry no content
            assert checkpoints.digest(loaded) == checkpoints.digest(content(0))
    assert noticed > 20


def test_a_file_that_is_no_archive_at_all_is_told_as_damaged(tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    path.write_bytes(b"\x80\x02X\xff")  # a pickle that ends within a number
    with pytest.raises(DamagedCheckpointError, match=r"last\.ckpt is damaged"):
        load_run_checkpoint(path)


def run_checkpoint(step: int) -> dict[str, Any]:
    """The least that a checkpoint of a run holds."""
    return {"identity": {}, "callbacks": {}, "state_dict": {}, "global_step": step}


def newest(folder: Path, foreign_step: int = -1) -> str | None:
    def check(checkpoint: dict[str, Any]) -> None:
        if checkpoint["global_step"] == foreign_step:
            raise ValueError("the checkpoint's seed_everything is 1, expected 0")

    found = find_newest(folder, check)
    return found[0].name if found else None


def test_damaged_and_foreign_checkpoints_are_reported_and_the_best_model_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="releg")
    assert newest(tmp_path) is None
    SafeCheckpointIO().save_checkpoint(run_checkpoint(1), tmp_path / "best.ckpt")
    SafeCheckpointIO().save_checkpoint(run_checkpoint(2), tmp_path / "last.ckpt")
    assert newest(tmp_path) == "last.ckpt"
    assert newest(tmp_path, foreign_step=2) == "best.ckpt"
    assert "last.ckpt cannot be continued: the checkpoint's seed_everything is 1, expected 0; skipped" in caplog.text
    (tmp_path / "last.ckpt").write_bytes(b"PK\x03\x04 half a checkpoint")
    assert newest(tmp_path) == "best.ckpt"
    assert "last.ckpt is damaged" in caplog.text


def test_a_run_whose_best_model_is_lost_trains_its_steps_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="releg")
    knows_best = run_checkpoint(3) | {"callbacks": {"BestCheckpoint": {"best_model_score": -1.0}}}
    SafeCheckpointIO().save_checkpoint(knows_best, tmp_path / "last.ckpt")
    assert newest(tmp_path) is None
    assert "best.ckpt is missing or damaged, expected the best model so far; its steps are" in caplog.text


@pytest.mark.parametrize("part", ["state_dict", "identity"])
def test_a_checkpoint_of_another_program_is_refused_though_it_carries_a_digest(part: str, tmp_path: Path) -> None:
    SafeCheckpointIO().save_checkpoint({part: {}}, tmp_path / "other.ckpt")
    with pytest.raises(ValueError, match="has no identity or no weights, expected the checkpoint of a run"):
        load_run_checkpoint(tmp_path / "other.ckpt")


def test_a_missing_checkpoint_is_refused_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no checkpoint"):
        load_run_checkpoint(tmp_path / "nothing.ckpt")
