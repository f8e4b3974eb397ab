"""Long runs: a kill about every minute, which is tried only with --faults=full, and a large file of metrics."""

import math
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.lightning_modules.commands_helper import ENVIRONMENT, ROOT, TINY, releg_command
from tests.lightning_modules.run_states import assert_identical, curve, final_state, result, wait_for_new_checkpoint

pytestmark = pytest.mark.long

STEPS = int(os.environ.get("RELEG_SOAK_STEPS", "50000"))
SECONDS_BETWEEN_KILLS = (30.0, 90.0)
MOST_GROWTH = 30  # MiB of resident memory, from the first checkpoint to the end


def fit(results: Path, max_steps: int = STEPS) -> list[str]:
    steps = ["--trainer.max_steps", str(max_steps), "--trainer.val_check_interval", "1000"]
    return ["fit", *TINY, *steps, "--config", "estimator/likelihood_ratio.yaml", "--results_dir", str(results)]


def folder_of(results: Path) -> Path:
    return results / "runs" / "6-12" / "likelihood_ratio" / "seed0"


def start(results: Path, max_steps: int = STEPS) -> "subprocess.Popen[str]":
    command = releg_command(*fit(results, max_steps))
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


def cpu_seconds(process: "subprocess.Popen[str]") -> float:
    """That it has used until now."""
    user, system = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def test_a_run_with_200_000_rows_of_metrics_goes_on_with_all_of_them(tmp_path: Path, is_full: bool) -> None:
    """As many as 2,000,000 steps log every 10. Seconds are told; only the full schedule, on an idle machine, judges."""
    folder = folder_of(tmp_path)
    process = start(tmp_path, 2_000_000)
    wait_for_new_checkpoint(folder, process)
    process.kill()
    process.wait()
    metrics = folder / "metrics.csv"
    logged = range(10, 2_000_000, 10)
    rows = "".join(f"{step % 1000},{step / 700:.3f},train/elbo,{-100 - step / 7e5}\n" for step in logged)
    metrics.write_text("step,seconds,metric,value\n" + rows)
    began, before = time.monotonic(), metrics.stat().st_ino
    process = start(tmp_path, 2_000_000)
    size = 0
    while process.poll() is None and not (metrics.stat().st_ino != before and metrics.stat().st_size > size > 0):
        size = metrics.stat().st_size if metrics.stat().st_ino != before else 0  # rewritten, then grown by a row
        time.sleep(0.01)
    used, waited = cpu_seconds(process), time.monotonic() - began
    process.kill()
    process.wait()
    print(f"continued with {len(logged):,} rows: {used:.1f} s of CPU, {waited:.1f} s in all")
    assert used < 10.0 or not is_full
    assert len(metrics.read_text().splitlines()) > len(logged)
