"""One process at a time."""

import os
from pathlib import Path

import pytest

from lightning_modules.run import lock


def test_a_run_is_locked_for_others_who_learn_how_to_find_the_process(tmp_path: Path) -> None:
    message = "another releg fit is working in .*, expected none; wait for it to end, or stop it .*fuser .*lock"
    with lock.locked_run(tmp_path), pytest.raises(BlockingIOError, match=message), lock.locked_run(tmp_path, wait=0.0):
        pass
    with lock.locked_run(tmp_path, wait=0.0):
        pass


def test_a_locked_folder_is_refused_and_free_again_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "SECONDS_TO_WAIT", 0.1)
    with (
        lock.locked(tmp_path),
        pytest.raises(BlockingIOError, match=r"another reproduce\.sh is working in"),
        lock.locked(tmp_path),
    ):
        pass
    with lock.locked(tmp_path):
        pass


@pytest.mark.parametrize("link", [os.link, os.symlink])
def test_a_lock_that_is_a_link_changes_nothing_outside(link: object, tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "folder"
    outside.write_text("precious")
    folder.mkdir()
    assert callable(link)
    link(outside, folder / ".lock")
    with lock.locked_run(folder), pytest.raises(BlockingIOError), lock.locked_run(folder, wait=0.0):
        pass
    assert outside.read_text() == "precious"
