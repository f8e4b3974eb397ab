"""Where a result comes from: commit, versions, hardware and command line of each process that worked on a run.

If another version of the program continues a run, the difference is reported and recorded.
"""

from __future__ import annotations

import hashlib
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
from lightning_modules.command_line.console import say
from lightning_modules.run.settings import Config
from releg.files import write_json
from releg.machine import cores

PROVENANCE = "provenance.json"
EARLIER = "earlier_entries"  # of an entry: "damaged" if some before it were
NOT_THE_USERS = ("releg", "lightning_modules", "torch", "pytorch_lightning", "lightning")
INSTALLED = ("site-packages", "dist-packages")
PACKAGES = ("torch", "torchvision", "pytorch-lightning", "torchmetrics", "numba", "numpy")


def provenance() -> dict[str, Any]:
    """Commit, versions, hardware and command line of this process."""
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "command": [_program(), *sys.argv[1:]],
        "commit": _git("rev-parse", "HEAD"),
        "uncommitted_changes": _has_uncommitted_changes(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
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
    path = folder / PROVENANCE
    before, is_whole = _read(path)
    entry = provenance() | {"data_sha256": data_checksum}
    if not is_whole:
        say(f"{path} is damaged, expected an entry of each process that worked on the run; what it lacks is lost")
        entry[EARLIER] = "damaged"
    if own := own_sources(config):
        entry["own_sources"] = own
    write_json(path, [*before, entry], indent=2)
    return "; ".join(_changes(before[-1], entry)) if before else ""


def own_sources(config: Config) -> dict[str, str]:
    """SHA-256 of modules that are not shipped: those whose classes a config names, and all imported from beside them.

    What lies beside an installed package is installed too: it is no part of the run and is left out.
    """
    named = {class_path.split(".")[0] for class_path in class_paths(config)}.difference(NOT_THE_USERS)
    loaded = {name: getattr(module, "__dict__", {}).get("__file__") for name, module in [*sys.modules.items()]}
    files = {name: Path(file) for name, file in loaded.items() if file and name.split(".")[0] not in NOT_THE_USERS}
    homes = {file.parents[file.stem == "__init__"] for name, file in files.items() if name in named}

    def is_own(name: str, file: Path) -> bool:
        top = name.split(".")[0]
        places = [home / each for home in homes if home.name not in INSTALLED for each in (top, f"{top}.py")]
        return top in named or any(place in (file, *file.parents) for place in places)

    own = sorted((name, file) for name, file in files.items() if is_own(name, file) and file.is_file())
    return {name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in own}


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
    commits = [_commit(entry) for entry in (before, now)]
    if commits[0] != commits[1]:
        yield f"commit {commits[1]}, before {commits[0]}"
    threads = [entry.get("torch_threads") for entry in (before, now)]  # which rounding depends on
    if None not in threads and threads[0] != threads[1]:
        yield f"torch_threads {threads[1]}, before {threads[0]}"
    for kind in ("packages", "own_sources"):
        old, new = ({**entry[kind]} if isinstance(entry.get(kind), dict) else {} for entry in (before, now))
        for name in sorted(old.keys() & new.keys()):
            if old[name] != new[name]:
                yield f"{name} {new[name]}, before {old[name]}" if kind == "packages" else f"a changed {name}"


def _commit(entry: dict[str, Any]) -> str:
    changed = " with uncommitted changes" if entry.get("uncommitted_changes") else ""
    return f"{str(entry.get('commit', ''))[:7] or 'unknown'}{changed}"


def read_provenance(folder: Path) -> list[dict[str, Any]]:
    """All whole entries of a run; none if the file is missing or damaged."""
    return _read(folder / PROVENANCE)[0]


def _read(path: Path) -> tuple[list[dict[str, Any]], bool]:
    """The entries that can be read, and whether these are all."""
    try:
        entries = json.loads(path.read_bytes())
    except FileNotFoundError:
        return [], True
    except (OSError, ValueError):
        return [], False
    whole = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    return whole, whole == entries


def _program() -> str:
    """What was started; `python -m lightning_modules.cli` is the releg command."""
    name = Path(sys.argv[0]).name
    return "releg" if name == "cli.py" else name


def _has_uncommitted_changes() -> bool:
    """Whether tracked files outside results/ have uncommitted changes; earlier runs rewrite the reports in results/."""
    return bool(_git("status", "--porcelain", "--untracked-files=no", "--", ".", ":(exclude)results"))


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:  # git is not installed
        return ""
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
