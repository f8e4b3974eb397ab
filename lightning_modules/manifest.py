"""results/runs.json: what the reports read. The finished runs of a grid with config, result and provenance of each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lightning_modules.grid import GridRun, Placed
from lightning_modules.run_folder import PROVENANCE, identity, read_config, write_atomically
from lightning_modules.shipped_estimators import read_estimator

RUNS = "runs.json"
EXTENDED_RUNS = "extended_runs.json"  # those of --extended


def write_manifests(
    results: Path, command: str, finished: Sequence[Placed], missing: Mapping[GridRun, str], elapsed: float
) -> None:
    """Write that of the grid; and that of the other estimators, if they were asked for: else it stays as it is."""
    for name, extended in ((RUNS, False), (EXTENDED_RUNS, True)):
        there = [placed for placed in finished if placed.run.extended == extended]
        absent = {run: reason for run, reason in missing.items() if run.extended == extended}
        if there or absent or not extended:
            write_manifest(results / name, results, command, there, absent, elapsed)


def write_manifest(
    path: Path, results: Path, command: str, finished: Sequence[Placed], missing: Mapping[GridRun, str], elapsed: float
) -> None:
    """Write one.

    Args:
        path: the file.
        results: the folder.
        command: what the user typed.
        finished: runs with a result.
        missing: the other runs of the grid, and why they are not there.
        elapsed: wall-clock seconds of this command.
    """
    manifest = {
        "command": command,
        "seconds": round(elapsed, 1),
        "runs": [_entry(results, placed) for placed in finished],
        "missing": {str(run): reason for run, reason in missing.items()},
    }
    write_atomically(path, json.dumps(manifest, indent=1) + "\n")


def _entry(results: Path, placed: Placed) -> dict[str, Any]:
    return {
        "folder": str(placed.folder.relative_to(results)),
        "estimator": placed.run.estimator,
        **(_nature(placed.run.estimator) if placed.run.extended else {}),
        "config": identity(read_config(placed.folder)),
        "result": placed.result,
        "provenance": _provenance(placed.folder),
    }


def _nature(name: str) -> dict[str, Any]:
    """What a table must say of an estimator."""
    estimator = read_estimator(name)
    return {"unbiased": estimator.unbiased, "objective": estimator.objective}


def _provenance(folder: Path) -> list[dict[str, Any]]:
    """One entry per process that worked on the run; without command lines, which are full of this machine's paths."""
    try:
        entries = json.loads((folder / PROVENANCE).read_bytes())
        return [{key: value for key, value in entry.items() if key != "command"} for entry in entries]
    except (OSError, ValueError, AttributeError):
        return []
