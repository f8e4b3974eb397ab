"""The section "On a cluster" of lightning_modules/README.md: every command runs, on one machine and for seconds."""

import importlib.util
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.environment import ROOT
from tests.lightning_modules.commands_helper import TINY, releg
from tests.pages import blocks, section
from tests.processes import end_all, find_processes
from tests.reproduce_script import CRN, Script, finish, wait_for, without_times

RAY_NODE = "raylet/raylet"
WAITS_FOR_CTRL_C = "block forever until terminated by a signal"  # what `ray start --block` prints at last


def commands() -> list[str]:
    (block,) = blocks(section("lightning_modules", "On a cluster"), "bash")
    return block.splitlines()


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@contextmanager
def node(command: list[str], environment: dict[str, str], port: int) -> Iterator[None]:
    """A node of a Ray cluster, in the terminal of its own that the page speaks of; Ctrl-C ends it."""
    here = {process.pid for process in find_processes(RAY_NODE)}
    with tempfile.NamedTemporaryFile() as terminal:
        process = subprocess.Popen(
            command, env=environment, stdout=terminal, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )
        printed = Path(terminal.name).read_text
        raylets: list[int] = []
        try:
            # Not before: while it starts, Ray can swallow a Ctrl-C
            wait_for(lambda: WAITS_FOR_CTRL_C in printed(), process)
            raylets = [each.pid for each in find_processes(RAY_NODE, str(port)) if each.pid not in here]
            assert raylets
            yield
        finally:
            os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to all that was started in it
            left = end_all([process.pid, *raylets], patience=60)
            process.wait()
        assert left == 0, f"a node outlived its terminal, which shows: {printed()}"


@pytest.mark.long
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed; pip install -e '.[ray]'")
def test_the_commands_of_the_page_run(script: Script, undisturbed: tuple[Path, str, str], tmp_path: Path) -> None:
    port = free_port()
    environment = {**script.environment, "RAY_TMPDIR": "/tmp"}
    done = []
    with ExitStack() as nodes:
        for line in commands():
            words = shlex.split(line.replace("HEAD:6379", f"127.0.0.1:{port}").replace("6379", str(port)))
            match words[:2]:
                case ["pip", "install"]:
                    subprocess.run([sys.executable, "-m", *words], cwd=ROOT, check=True, capture_output=True)
                case ["ray", "start"]:
                    command = [str(Path(sys.executable).with_name("ray")), *words[1:], "--num-cpus", "1"]
                    nodes.enter_context(node(command, environment, port))
                case ["bash", "reproduce.sh"]:
                    short = ["--budget", "budget/tiny.yaml", "--results", str(tmp_path), "--seeds", "1", *CRN]
                    code, _, err = finish(script.start(*words[2:], *short))
                    assert code == 0, err
                    expected = [row for row in without_times(undisturbed[0]) if row["estimator"] == "crn"]
                    assert without_times(tmp_path) == expected
                case ["releg", "fit"]:
                    fitted = releg(*words[1:], *TINY[4:], "--results_dir", str(tmp_path / "ddp"))
                    assert fitted.returncode == 0, fitted.stderr
                    assert "is finished" in fitted.stderr
                case _:
                    pytest.fail(f"nobody tests {line}")
            done.append(words[0])
    assert done == ["pip", "ray", "ray", "bash", "releg"]
