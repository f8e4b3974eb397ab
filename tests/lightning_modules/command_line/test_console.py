"""How the command ends, whatever happened in it."""

import pytest
import torch
from pytorch_lightning.utilities.exceptions import SIGTERMException
from torch.distributed import DistError

from lightning_modules.command_line.console import answered, progress_bar


def ends_with(error: BaseException) -> int:
    def run() -> int:
        raise error

    return answered(run)


def test_a_mistake_of_the_program_keeps_its_traceback() -> None:
    with pytest.raises(KeyError, match="a key"):
        ends_with(KeyError("a key"))


@pytest.mark.parametrize("interruption", [KeyboardInterrupt(), SystemExit(1)])
def test_an_interruption_says_how_to_go_on(interruption: BaseException, capsys: pytest.CaptureFixture[str]) -> None:
    assert ends_with(interruption) == 130
    assert capsys.readouterr().err == (
        "releg: interrupted; the same command continues from the last checkpoint, if there is one\n"
    )


def test_the_exit_codes_of_help_and_of_sigterm_are_those_of_shells() -> None:
    assert ends_with(SystemExit(0)) == 0
    assert ends_with(SIGTERMException()) == 143


def test_what_would_command_the_terminal_is_spelt_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert ends_with(ValueError("there is no command \x1b[2Jé")) == 2
    assert capsys.readouterr().err == "releg: there is no command \\x1b[2Jé\n"


def test_a_mistake_of_the_user_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert ends_with(ValueError("x is 1,\n  expected 2;\n\n  choose 2")) == 2
    assert capsys.readouterr().err == "releg: x is 1, expected 2; choose 2\n"


def test_too_little_memory_is_no_mistake_of_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    assert answered(lambda: len(torch.empty(10**15))) == 2
    assert ends_with(MemoryError()) == 2
    assert ends_with(torch.cuda.OutOfMemoryError("CUDA out of memory.")) == 2
    assert capsys.readouterr().err.count("releg: out of memory, expected settings that fit this machine;") == 3
    with pytest.raises(RuntimeError, match="illegal memory access"):
        ends_with(RuntimeError("CUDA error: an illegal memory access was encountered"))


def test_a_rank_that_lost_another_points_to_its_message(capsys: pytest.CaptureFixture[str]) -> None:
    assert ends_with(DistError("gone")) == 2
    assert capsys.readouterr().err.startswith(
        "releg: another rank died; see its message nearby; the same command continues"
    )


def test_progress_without_a_terminal_is_a_line_now_and_then_with_the_time_left(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="releg")
    now = [0.0]
    monkeypatch.setattr("tqdm.std.time", lambda: now[0])
    with progress_bar("another", None, " images"), progress_bar("a measurement", 10, " images") as bar:
        for now[0] in (10.0, 20.0, 30.0, 60.0):
            bar.update(2)
    lines = [record.message for record in caplog.records]
    assert [line.split("|")[0] for line in lines] == [f"a measurement: {part}%" for part in (40, 80)]
    assert "4/10 [00:20<00:30," in lines[0]
