"""reproduce.sh as a user runs it, with a budget of seconds; what it left behind, in a form that can be compared."""

import fcntl
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.environment import ROOT

needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed; pip install -e '.[ray]'"
)

BUDGET = """
trainer: {max_steps: 30, val_check_interval: 10, log_every_n_steps: 10, limit_val_batches: 1, limit_test_batches: 1}
model: {test_samples: 2}
"""
MEASURE = """
trainer:
  callbacks+:
    - class_path: lightning_modules.gradient_variance.GradientVariance
      init_args:
        estimators: {common_random_numbers: {class_path: releg.estimators.common_random_numbers.CommonRandomNumbers}}
        num_images: 3
        samples_per_image: 10
        steps: [1]
"""
FIGURE1 = ("--only", "32-64-128-256")
CRN = ("--only", "32-64-128-256,crn")


class Script:
    """The script with a set-up that is done already: the suite runs in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "budget" / "tiny").mkdir(parents=True)
        (folder / "budget" / "tiny.yaml").write_text(BUDGET)
        (folder / "budget" / "tiny" / "32-64-128-256.yaml").write_text(MEASURE)
        python = folder / "python"
        python.write_text(f"#!/bin/sh\necho '{sys.executable}'\n")
        python.chmod(0o755)
        self.environment = {**os.environ, "RELEG_PYTHON": str(python), "OMP_NUM_THREADS": "1"}

    def start(self, *arguments: str, limit: Callable[[], None] | None = None) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            ["bash", str(ROOT / "reproduce.sh"), *arguments],
            cwd=self.folder,  # from anywhere
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=limit,
        )

    def tiny(self, results: Path, *arguments: str, limit: Callable[[], None] | None = None) -> "subprocess.Popen[str]":
        return self.start("--budget", "budget/tiny.yaml", "--results", str(results), *arguments, limit=limit)


def finish(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=400)
    finally:
        process.kill()
    return process.returncode, out, err


def rows(results: Path) -> list[dict[str, Any]]:
    table: list[dict[str, Any]] = json.loads((results / "table1.json").read_text())
    return table


def without_times(results: Path) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key != "minutes"} for row in rows(results)]


def curve(results: Path, trained_with: str = "") -> list[list[str]]:
    """The points behind Figure 1, of all runs or of those with one estimator, without the seconds that they took."""
    bounds, variances = (
        [line.split(",") for line in (results / name).read_text().splitlines() if line.startswith(trained_with)]
        for name in ("figure1.csv", "figure1_variances.csv")
    )
    return [[*cells[:3], cells[4]] for cells in bounds] + variances


def wait_for(what: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + 300
    while not what():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_free(results: Path) -> bool:
    """The lock is held until the last process that works in the folder is gone."""
    with (results / "runs" / ".lock").open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
