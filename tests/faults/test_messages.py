"""What is said when the machine does not do what it should: the cause, and what helps against it."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from lightning_modules import cli
from lightning_modules.grid import __main__ as reproduce
from tests.lightning_modules.commands_helper import ENVIRONMENT, ROOT, TINY


def test_a_net_that_is_too_large_is_no_mistake_of_the_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [*TINY, "--config", "estimator/likelihood_ratio.yaml", "--results_dir", str(tmp_path)]
    assert cli.main(["fit", *given, "--model.layers", "[10000000000]"]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("releg: out of memory, expected settings that fit this machine; ")


def test_the_papers_numbers_are_copied_whole_or_not_at_all(tmp_path: Path) -> None:
    def small_disk() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))  # less than the file

    stopped = subprocess.run(
        [sys.executable, "-m", "lightning_modules.grid", "--results", str(tmp_path)],
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        preexec_fn=small_disk,
        check=False,
    )
    assert stopped.returncode == 2
    assert not list(tmp_path.iterdir())
    assert stopped.stderr.startswith("reproduce.sh: cannot use ")
    reproduce._prepare(tmp_path)
    assert (tmp_path / "paper.json").read_bytes() == (ROOT / "results" / "paper.json").read_bytes()
