"""One process at a time."""

import os
from pathlib import Path

import pytest

from lightning_modules.run import lock


def test_a_run_is_locked_for_others_who_learn_which_process_has_it(tmp_path: Path) -> None:
    message = rf"another releg fit \(process {os.getpid()} on .*\) is working in .*, expected none; wait for it to end"
    with lock.locked_run(tmp_path), pytest.raises(BlockingIOError, match=message), lock.locked_run(tmp_path, wait=0.0):
        pass
    with lock.locked_run(tmp_path, wait=0.0):
        pass


def test_a_locked_folder_is_refused_and_free_again_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "SECONDS_TO_WAIT", 0.1)
    with (
        lock.locked(tmp_path),
        pytest.raises(BlockingIOError, match=r"another reproduce\.sh \(process \d+\) is working in"),
        lock.locked(tmp_path),
    ):
        pass
    with lock.locked(tmp_path):
        pass
