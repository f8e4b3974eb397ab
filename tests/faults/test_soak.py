"""A long run with a kill about every minute, which is tried only with --faults=full."""

import math
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.lightning_modules.commands_helper import ENVIRONMENT, ROOT, fit, folder_of, releg_command
from tests.lightning_modules.run_states import assert_identical, curve, final_state, result

pytestmark = pytest.mark.long

STEPS = int(os.environ.get("RELEG_SOAK_STEPS", "50000"))
SECONDS_BETWEEN_KILLS = (30.0, 90.0)
MOST_GROWTH = 30  # MiB of resident memory, from the first checkpoint to the end


def start(results: Path) -> "subprocess.Popen[str]":
    command = releg_command(*fit(results, "--trainer.max_steps", str(STEPS), "--trainer.val_check_interval", "1000"))
    return subprocess.Popen(command, cwd=ROOT, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)


def resident(process: "subprocess.Popen[str]") -> int:
    """MiB; none if it has ended."""
    try:
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) // 1024 for line in lines if line.startswith("VmRSS")), 0)


def follow(process: "subprocess.Popen[str]", folder: Path, seconds: float = math.inf) -> list[int]:
    """The memory that a process has after its first checkpoint, for some seconds or until it ends."""
    before = (folder / "last.ckpt").stat().st_mtime_ns if (folder / "last.ckpt").exists() else 0
    sizes: list[int] = []
    end = math.inf
    while process.poll() is None and time.monotonic() < end:
        time.sleep(0.5)
        if (folder / "last.ckpt").exists() and (folder / "last.ckpt").stat().st_mtime_ns != before:
            end = min(end, time.monotonic() + seconds)
            sizes.append(resident(process))
    return [size for size in sizes if size]


def test_a_long_run_that_is_killed_every_minute_ends_as_one_that_is_not(tmp_path: Path, is_full: bool) -> None:
    if not is_full:
        pytest.skip("only with --faults=full")
    undisturbed = start(tmp_path / "undisturbed")
    sizes = follow(undisturbed, folder_of(tmp_path / "undisturbed"))
    assert undisturbed.wait() == 0
    assert max(sizes) - sizes[0] < MOST_GROWTH, f"resident MiB: {sizes[:: max(1, len(sizes) // 20)]}"
    moments, killed, kills = random.Random(17), tmp_path / "killed", 0
    while True:
        process = start(killed)
        follow(process, folder_of(killed), moments.uniform(*SECONDS_BETWEEN_KILLS))
        process.kill()
        _, said = process.communicate()
        assert "Traceback" not in said
        if process.returncode != -signal.SIGKILL:
            break
        kills += 1
    assert process.returncode == 0, said
    one, other = folder_of(tmp_path / "undisturbed"), folder_of(killed)
    print(f"soak: {STEPS} steps, {kills} kills, resident MiB {sizes[0]} at first, {max(sizes)} at most")
    assert_identical(final_state(one), final_state(other))
    assert result(one) == result(other)
    assert curve(one) == curve(other)
    assert kills > 0
