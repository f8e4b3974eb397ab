"""Where a result comes from: commit, versions, hardware and command line of each process that worked on a run."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from releg.files import write_atomically
from releg.machine import cores

PROVENANCE = "provenance.json"
PACKAGES = ("torch", "torchvision", "pytorch-lightning", "torchmetrics", "numba", "numpy")


def provenance() -> dict[str, Any]:
    """Commit, versions, hardware and command line of this process."""
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "command": [_program(), *sys.argv[1:]],
        "commit": _git("rev-parse", "HEAD"),
        "uncommitted_changes": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": cores(),
        "torch_threads": torch.get_num_threads(),
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
    }


def record_provenance(folder: Path, data_checksum: str) -> None:
    """Add one entry to provenance.json: a run that was interrupted has several."""
    entries = [*read_provenance(folder), provenance() | {"data_sha256": data_checksum}]
    write_atomically(folder / PROVENANCE, json.dumps(entries, indent=2) + "\n")


def read_provenance(folder: Path) -> list[dict[str, Any]]:
    """All whole entries of a run; none if the file is missing or damaged."""
    try:
        entries = json.loads((folder / PROVENANCE).read_bytes())
    except (OSError, ValueError):
        return []
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def _program() -> str:
    """What was started; `python -m lightning_modules.cli` is the releg command."""
    name = Path(sys.argv[0]).name
    return "releg" if name == "cli.py" else name


def _git(*arguments: str) -> str:
    root = Path(__file__).parents[2]
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
