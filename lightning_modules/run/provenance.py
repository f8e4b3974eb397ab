"""Where a result comes from: commit, versions, hardware and command line of each process that worked on a run.

If another version of the program continues a run, the difference is reported and recorded.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from lightning_modules import ROOT
from lightning_modules.run.settings import Config
from releg.files import write_json
from releg.machine import cores

PROVENANCE = "provenance.json"
NOT_THE_USERS = ("releg", "lightning_modules", "torch", "pytorch_lightning", "lightning")
PACKAGES = ("torch", "torchvision", "pytorch-lightning", "torchmetrics", "numba", "numpy")
CHANGE_NUMBERS = ("commit", "uncommitted_changes", "torch_threads", "packages", "own_sources")  # if they differ


def provenance() -> dict[str, Any]:
    """Commit, versions, hardware and command line of this process."""
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "commit": _git("rev-parse", "HEAD"),
        # of tracked files; earlier runs rewrite the reports in results/
        "uncommitted_changes": bool(_git("status", "--porcelain", "-uno", "--", ".", ":(exclude)results")),
        "python": platform.python_version(),
        "packages": {name: metadata.version(name) for name in PACKAGES},
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": cores(),
        "torch_threads": torch.get_num_threads(),
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
    }


def without_command(entry: dict[str, Any]) -> dict[str, Any]:
    """An entry that can be published: a command line may name folders of this machine."""
    return {key: value for key, value in entry.items() if key != "command"}


def record_provenance(folder: Path, data_checksum: str, config: Config) -> str:
    """Add one entry to provenance.json: a run that was interrupted has several.

    Returns in one line what differs from the entry before; empty if nothing does, or if there is none.
    """
    before = read_provenance(folder)
    if not before and (folder / PROVENANCE).is_file():
        raise ValueError(f"{folder / PROVENANCE} is damaged, expected where this run's numbers come from; restore it")
    entry = {**provenance(), "data_sha256": data_checksum, "own_sources": own_sources(config)}
    write_json(folder / PROVENANCE, [*before, entry], indent=2)
    return "; ".join(_changes(before[-1], entry)) if before else ""


def own_sources(config: Config) -> dict[str, str]:
    """SHA-256 of the modules whose classes a config names and which are not shipped."""
    names = {class_path.rpartition(".")[0] for class_path in class_paths(config)}
    own = sorted(name for name in names if name.split(".")[0] not in NOT_THE_USERS)
    return {name: hashlib.sha256(inspect.getsource(sys.modules[name]).encode()).hexdigest() for name in own}


def class_paths(config: Any) -> Iterator[str]:
    """All classes that a config names."""
    if isinstance(config, dict):
        if isinstance(config.get("class_path"), str):
            yield config["class_path"]
        config = list(config.values())
    if isinstance(config, list):
        for each in config:
            yield from class_paths(each)


def _changes(before: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    """What can change a number, if it differs between two entries."""
    for name in CHANGE_NUMBERS:
        old, new = before.get(name), now.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            changed = [part for part in new if old.get(part, new[part]) != new[part]]
            yield from (f"{part} {new[part]}, before {old[part]}" for part in changed)
        elif old != new:
            yield f"{name} {new}, before {old}"


def read_provenance(folder: Path) -> list[dict[str, Any]]:
    """All entries of a run; none if the file is missing or damaged."""
    try:
        return [entry for entry in json.loads((folder / PROVENANCE).read_bytes()) if isinstance(entry, dict)]
    except (OSError, ValueError, TypeError):
        return []


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:  # git is not installed
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
