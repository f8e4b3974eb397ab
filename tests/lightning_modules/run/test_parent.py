"""What a run and the process that started it owe each other."""

import subprocess
import sys
from pathlib import Path

import pytest

from lightning_modules.run.parent import AUTOGROUP, Progress, read_progress, write_progress
from tests.environment import ROOT
from tests.processes import end_all

# A process that would sleep for a minute, started by one that prints its number and ends
CHILD = (
    "import sys, time; from lightning_modules.run.parent import end_with; end_with(int(sys.argv[1])); time.sleep(60)"
)
PARENT = (
    "import os, subprocess, sys\n"
    f"child = subprocess.Popen([sys.executable, '-c', {CHILD!r}, str(os.getpid())], stdout=subprocess.DEVNULL)\n"
    "print(child.pid)"
)


def test_a_process_ends_with_the_one_that_started_it() -> None:
    parent = subprocess.run([sys.executable, "-c", PARENT], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    assert end_all([int(parent.stdout)], patience=10) == 0


@pytest.mark.skipif(not AUTOGROUP.exists(), reason="this kernel does not group processes by session")
def test_the_session_of_a_nice_process_is_as_nice() -> None:
    code = (
        "import os; from lightning_modules.run.parent import AUTOGROUP, yield_as_a_session\n"
        "os.nice(7); yield_as_a_session(); print(AUTOGROUP.read_text())"
    )
    words = [sys.executable, "-c", code]
    answer = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, start_new_session=True)
    assert answer.stdout.strip().endswith("nice 7"), answer


def test_progress_is_read_as_it_was_written_and_none_before(tmp_path: Path) -> None:
    path = tmp_path / "progress.json"
    assert read_progress(path) is None
    for progress in (Progress(3, None), Progress(4, -1.5)):
        write_progress(path, progress)
        assert read_progress(path) == progress
    assert [file.name for file in tmp_path.iterdir()] == ["progress.json"]
    path.write_text('{"step": 5')
    assert read_progress(path) is None


def test_a_folder_that_cannot_be_written_does_not_stop_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    write_progress(tmp_path / "file" / "progress.json", Progress(3, None))
