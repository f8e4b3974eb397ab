"""How the command ends, whatever happened in it."""

import sys
import threading
from pathlib import Path

import pytest
from torch.distributed import DistError

from lightning_modules.command_line import console
from lightning_modules.command_line.console import answered, complain


def ends_with(error: BaseException) -> int:
    def run() -> int:
        raise error

    return answered(run)


def test_a_mistake_of_the_program_is_told_in_one_sentence_and_its_traceback_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert ends_with(KeyError("a key")) == 1
    (kept,) = tmp_path.iterdir()
    said = capsys.readouterr().err
    assert said.startswith("releg: this is a bug in releg (KeyError: 'a key'); ")
    assert str(kept) in said
    assert said.count("\n") == 1
    assert "in run\n    raise error" in kept.read_text()


@pytest.mark.parametrize("interruption", [KeyboardInterrupt(), SystemExit(1)])
def test_an_interruption_says_how_to_go_on(interruption: BaseException, capsys: pytest.CaptureFixture[str]) -> None:
    assert ends_with(interruption) == 130
    assert capsys.readouterr().err == (
        "releg: interrupted; the same command continues from the last checkpoint, if there is one\n"
    )


def test_help_ends_as_it_wants_to() -> None:
    with pytest.raises(SystemExit) as end:
        ends_with(SystemExit(0))
    assert end.value.code == 0


def test_what_would_end_the_line_or_command_the_terminal_is_spelt_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert complain("there is no command \r\x1b[2J\u2028é") == 2
    assert capsys.readouterr().err == "releg: there is no command \\r\\x1b[2J\\u2028é\n"


def test_a_mistake_of_the_user_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert ends_with(ValueError("x is 1,\n  - expected 2;\n\n  choose 2")) == 2
    assert capsys.readouterr().err == "releg: x is 1, expected 2; choose 2\n"


def test_a_negative_number_keeps_its_sign(capsys: pytest.CaptureFixture[str]) -> None:
    assert ends_with(ValueError("the step is\n  -5\n - expected a number from 0")) == 2
    assert capsys.readouterr().err == "releg: the step is -5 expected a number from 0\n"


def test_too_little_memory_is_no_mistake_of_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    assert ends_with(MemoryError()) == 2
    assert capsys.readouterr().err.startswith(
        "releg: out of memory, expected settings that fit this machine; choose a smaller"
    )


def test_a_rank_that_lost_another_points_to_its_message(capsys: pytest.CaptureFixture[str]) -> None:
    assert ends_with(DistError("gone")) == 2
    assert capsys.readouterr().err.startswith("releg: another rank died; see its message nearby, then run the same")


def test_threads_have_nothing_to_say_after_the_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorBoard's thread ends by the same full disk as the run, a moment before or after."""

    def full_disk() -> None:
        raise OSError(27, "File too large")

    def end_a_thread() -> None:
        writer = threading.Thread(target=full_disk, name="writer")
        writer.start()
        writer.join()

    said: list[str] = []
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    monkeypatch.setattr(console, "say", said.append)
    console.quieten()
    end_a_thread()
    assert said == ["background thread writer failed (OSError: [Errno 27] File too large)"]
    complain("cannot write it")
    end_a_thread()
    assert len(said) == 1


def test_the_sentence_is_written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    monkeypatch.setattr(sys.stderr, "write", written.append)
    complain("cannot write it")
    assert written == ["releg: cannot write it\n"]


def test_progress_without_a_terminal_is_a_line_now_and_then_with_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now, lines = [0.0], list[str]()
    monkeypatch.setattr("lightning_modules.command_line.console.time.monotonic", lambda: now[0])
    with console.showing("a measurement", 10, lines.append) as move:
        for now[0] in (10.0, 20.0, 30.0, 60.0):
            move(2)
    assert lines == [
        "a measurement: 4 of 10 images, 0.5 min left",
        "a measurement: 8 of 10 images, 0.2 min left",
        "a measurement: 10 images in 60.0 s",
    ]
