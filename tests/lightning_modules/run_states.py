"""What a run left behind, in a form that can be compared."""

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import torch

from lightning_modules.grid.plan import RunStatus
from lightning_modules.run.checkpoints import SafeCheckpointIO, load_run_checkpoint
from lightning_modules.run.csv_files import read_metrics
from lightning_modules.run.folder import save_config
from lightning_modules.run.provenance import record_provenance
from lightning_modules.run.result import write_result

RESULT = {"steps": 5, "best_step": 5, "training_seconds": 60.0, "test/elbo": -100.0, "test/multi_sample_bound": -99.0}


def leave_finished(status: RunStatus) -> None:
    """Leave behind what a finished run does, as far as the tables need it."""
    save_config(status.folder, status.config)
    write_result(status.folder, RESULT | {"val/elbo": -101.0})
    record_provenance(status.folder, "a checksum", status.config)


def save_best(folder: Path, model: torch.nn.Module) -> None:
    """The checkpoint of a run with this model, as far as publishing needs it."""
    state = {f"model.{key}": value for key, value in model.state_dict().items()}
    SafeCheckpointIO().save_checkpoint({"identity": {}, "state_dict": state}, folder / "best.ckpt")


def final_state(folder: Path) -> dict[str, Any]:
    state = load_run_checkpoint(folder / "last.ckpt")
    return {**state["state_dict"], "optimizer": state["optimizer_states"]}


def assert_identical(left: Any, right: Any, where: str = "") -> None:
    if isinstance(left, torch.Tensor):
        assert torch.equal(left, right), where
    elif isinstance(left, dict):
        assert left.keys() == right.keys(), where
        for key in left:
            assert_identical(left[key], right[key], f"{where}.{key}")
    elif isinstance(left, list):
        assert len(left) == len(right), where
        for index, (a, b) in enumerate(zip(left, right, strict=True)):
            assert_identical(a, b, f"{where}[{index}]")
    else:
        assert left == right, where


def curve(folder: Path) -> list[tuple[str, str, str]]:
    return [(row["step"], row["metric"], row["value"]) for row in read_metrics(folder / "metrics.csv")]


def wait_for_new_checkpoint(folder: Path, process: "subprocess.Popen[Any]") -> None:
    """Kill while the run trains or writes, not while Python starts: wait until a new checkpoint has appeared."""
    last = folder / "last.ckpt"
    before = last.stat().st_mtime_ns if last.exists() else 0
    while process.poll() is None and not (last.exists() and last.stat().st_mtime_ns != before):
        time.sleep(0.01)


def result(folder: Path) -> dict[str, float]:
    """What the tables are made of, without times."""
    numbers: dict[str, float] = json.loads((folder / "result.json").read_text())
    return {name: value for name, value in numbers.items() if name not in ("training_seconds", "digest")}
