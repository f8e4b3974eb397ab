"""What is said when the machine does not do what it should: the cause, and what helps against it."""

import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lightning_modules import cli
from lightning_modules.command_line.error_sentences import one_sentence
from lightning_modules.grid import __main__ as reproduce
from tests.lightning_modules.commands_helper import ENVIRONMENT, ROOT, TINY, releg_command


@pytest.mark.parametrize(
    ("command", "number", "what"),
    [
        (["fit", *TINY], signal.SIGINT, "interrupted"),
        (["variance", "--ckpt", "none.ckpt"], signal.SIGINT, "interrupted"),
        (["fit", *TINY], signal.SIGTERM, "ended by SIGTERM"),
    ],
)
def test_an_interruption_while_libraries_are_loading_is_one_line(command: list[str], number: int, what: str) -> None:
    process = subprocess.Popen(releg_command(*command), cwd=ROOT, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
    while "libtorch" not in Path(f"/proc/{process.pid}/maps").read_text():
        time.sleep(0.005)
    process.send_signal(number)
    _, said = process.communicate(timeout=30)
    assert said == f"releg: {what} while loading; nothing was started\n"
    assert process.returncode == 128 + number


def test_a_folder_in_a_files_place_is_not_called_a_full_disk(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "runs" / "6-12" / "likelihood_ratio" / "seed0"
    (folder / "metrics.csv").mkdir(parents=True)
    given = [*TINY, "--config", "estimator/likelihood_ratio.yaml", "--results_dir", str(tmp_path)]
    assert cli.main(["fit", *given]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    wrong = f"{folder / 'metrics.csv'} is a folder where a file belongs, or the reverse (Is a directory)"
    assert said.startswith(f"releg: {wrong}; move it away and run the same command again; it resumes")


@pytest.mark.parametrize("error", [PermissionError(1, "Operation not permitted", "a"), OSError(30, "Read-only", "a")])
def test_what_is_forbidden_is_not_called_a_full_disk(error: OSError) -> None:
    assert one_sentence(error).startswith(f"cannot use a ({error.strerror}), expected one that this user may use; ")


def test_a_net_that_is_too_large_is_no_mistake_of_the_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [*TINY, "--config", "estimator/likelihood_ratio.yaml", "--results_dir", str(tmp_path)]
    assert cli.main(["fit", *given, "--model.layers", "[10000000000]"]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("releg: out of memory, expected settings that fit this machine; choose ")


def test_a_negative_number_keeps_its_sign(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The library that reads settings puts dashes before its lines, as before the items of a list."""
    file = tmp_path / "mine.yaml"
    chosen = "{class_path: releg.estimators.leave_one_out.LeaveOneOut, init_args: {samples: -5}}"
    file.write_text(f"model: {{estimator: {chosen}}}")
    assert cli.main(["variance", "--ckpt", "none.ckpt", "--estimators", str(file)]) == 2
    assert ": samples is -5, expected at least 2" in capsys.readouterr().err
    assert one_sentence(ValueError("the step is\n  - -5")) == "the step is -5"


def test_the_papers_numbers_are_copied_whole_or_not_at_all(tmp_path: Path) -> None:
    def small_disk() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))  # less than the file

    stopped = subprocess.run(
        [sys.executable, "-m", "lightning_modules.grid", "--results", str(tmp_path)],
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=small_disk,
        check=False,
    )
    assert stopped.returncode == 2
    assert not list(tmp_path.iterdir())
    assert stopped.stderr.startswith("reproduce.sh: cannot write ")
    reproduce._prepare(tmp_path)
    assert (tmp_path / "paper.json").read_bytes() == (ROOT / "results" / "paper.json").read_bytes()


def test_an_output_that_cannot_be_written_is_told_in_a_sentence() -> None:
    environment = {**ENVIRONMENT, "PYTHONUNBUFFERED": ""}  # written as Python ends
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            releg_command("--help"), stdout=full, stderr=subprocess.PIPE, text=True, env=environment, check=False
        )
    assert done.returncode == 2
    assert done.stderr.startswith("releg: cannot write its output (No space left on device), expected room for it; ")
    assert done.stderr.count("\n") == 1
