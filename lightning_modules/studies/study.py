"""Runs that belong to a study, not to the grid of Table 1: made on this machine if they are missing."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from lightning_modules import RESULTS
from lightning_modules.grid.launchers import local as local_launcher
from lightning_modules.grid.options import at_least
from lightning_modules.grid.plan import GridRun, RunStatus, status_of
from lightning_modules.grid.reproduce import make_locally
from lightning_modules.run.folder import save_config
from releg.files import readable
from releg.records.file_names import CONFIG

Entry = dict[str, Any]
Key = TypeVar("Key")


class StudyError(RuntimeError):
    """Some of the runs could not be made."""


def options_of(command: str, description: str | None, arguments: list[str] | None) -> argparse.Namespace:
    """The options of every study: jobs, results, and whether to keep what was recorded elsewhere."""
    parser = argparse.ArgumentParser(command, description=description)
    parser.add_argument(
        "--jobs", type=at_least(1), default=local_launcher.default_jobs(2), help="runs at a time; default: one per core"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder to write to; default: results")
    parser.add_argument(
        "--missing", action="store_true", help="keep the recorded runs, wherever their folders are; make the others"
    )
    return parser.parse_args(arguments)


def recorded(path: Path, key: Callable[[Entry], Key]) -> dict[Key, Entry]:
    """What the study's file has recorded, by key; nothing if it is not there.

    Args:
        path: of the file.
        key: tells which run an entry is of.
    """
    if not path.is_file():
        return {}
    with readable(path, "what this command writes", "restore it, or delete it to make all runs again"):
        return {key(entry): entry for entry in json.loads(path.read_bytes())}


def make_missing(
    runs: Sequence[GridRun], what: str, jobs: int, lock: int, start_of_a_process: float
) -> list[RunStatus]:
    """The finished runs, after those that were missing have been made; StudyError if one failed.

    Args:
        runs: of the study.
        what: they are, in the plural.
        jobs: runs at a time.
        lock: of the study's folder, which the processes inherit.
        start_of_a_process: seconds that it takes, for the estimate of the time.
    """
    statuses = [_placed(run) for run in runs]
    waiting = [status for status in statuses if status.result is None]
    done = len(statuses) - len(waiting)
    if waiting:
        title = f"{what} to train: {len(waiting)}; already finished: {done}"
        problems = make_locally(waiting, done, jobs, lock, title, start_of_a_process)
        if problems:
            raise StudyError("\n".join(f"{run} failed: {why}" for run, why in problems.items()))
    return [status_of(run) for run in runs]


def _placed(run: GridRun) -> RunStatus:
    """Its state; its config is put into its folder, or another run of the same net would be given the same one."""
    status = status_of(run)
    if not (status.folder / CONFIG).is_file():
        save_config(status.folder, status.config)
    return status


def failed(command: str, error: StudyError) -> int:
    """Say which runs failed; the exit code."""
    print("\n".join(f"{command}: {line}" for line in str(error).splitlines()), file=sys.stderr)
    return 1
