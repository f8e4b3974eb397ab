"""What every study does: it makes the runs that its file does not record, keeps their numbers and writes its page."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from lightning_modules import OWN_RESULTS, RESULTS
from lightning_modules.command_line.parser import at_least
from lightning_modules.grid.grid import OnEnd, make
from lightning_modules.grid.launchers import local as local_launcher
from lightning_modules.grid.plan import GridRun, RunStatus, status_of
from lightning_modules.run.folder import save_config
from lightning_modules.run.lock import locked
from releg.files import readable, write_json
from releg.records.file_names import CONFIG

UNFINISHED = "unfinished"  # marks the numbers of a run that is still to be continued
Numbers = dict[str, Any]  # of one run, as the study's file keeps them


class Planned(Protocol):
    """A run that a study plans, a named tuple: its fields tell it from the study's other runs."""

    def run(self, folder: Path) -> GridRun:
        """The run that it is, in this results folder."""

    def __hash__(self) -> int: ...

    def _asdict(self) -> Numbers: ...

    def __iter__(self) -> Iterator[Any]: ...


@dataclass(frozen=True)
class Study:
    """What one study trains and writes.

    Args:
        description: for --help.
        file: of its numbers, in the results folder; the runs are beside it.
        fields: of what it plans.
        planned: all of its runs, as far as what is recorded tells them.
        numbers: what to keep of a run, beside its fields.
        write_page: writes the page from the file.
        threads: of each run; None: its part of the cores.
        shows_unfinished: whether `numbers` takes runs under way, too; it marks them by `UNFINISHED`.
    """

    description: str | None
    file: str
    fields: tuple[str, ...]
    planned: Callable[[Sequence[Numbers]], Iterable[Planned]]
    numbers: Callable[[RunStatus], Numbers]
    write_page: Callable[[Path], object]
    threads: int | None = None
    shows_unfinished: bool = False

    def main(self, arguments: list[str] | None = None) -> int:
        """Make the runs that are not recorded, and the page. Returns 0; SystemExit, with a sentence, if one failed."""
        options = options_of(self.description, arguments, publishes=True)
        path = options.results / self.file
        if options.publish:
            self.publish(path)
            return 0
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path.parent) as lock:
            while new := self._missing(self.recorded(path), path.parent):
                try:
                    make_missing(
                        [*new.values()], options.jobs, lock, self.threads, lambda _: self._write(path, options.results)
                    )
                finally:
                    self._write(path, options.results)
            self._write(path, options.results)
        return 0

    def publish(self, path: Path) -> None:
        """Add the numbers of this file to the published ones, in place of those of the same runs."""
        published = RESULTS / self.file
        write_json(published, list((self.recorded(published) | self._collected(path)).values()))
        self.write_page(RESULTS)

    def _missing(self, recorded: Mapping[tuple[Any, ...], Numbers], folder: Path) -> dict[Planned, GridRun]:
        """The runs that are not recorded as finished, and are known by now."""
        finished = {key: entry for key, entry in recorded.items() if not entry.get(UNFINISHED)}
        planned = self.planned(list(finished.values()))
        return {run: run.run(folder) for run in planned if tuple(run) not in finished}

    def _collected(self, path: Path) -> dict[tuple[Any, ...], Numbers]:
        """What is recorded, and what has been trained since."""
        recorded = self.recorded(path)
        for planned, run in self._missing(recorded, path.parent).items():
            status = status_of(run)
            if status.result is not None or (self.shows_unfinished and status.steps_done):
                recorded[tuple(planned)] = planned._asdict() | self.numbers(status)
        return recorded

    def _write(self, path: Path, results: Path) -> None:
        if collected := self._collected(path):
            write_json(path, list(collected.values()))
            self.write_page(results)

    def recorded(self, path: Path) -> dict[tuple[Any, ...], Numbers]:
        """The numbers that the study's file has, by what was planned; nothing if there is no file."""
        if not path.is_file():
            return {}
        with readable(path, "what this command writes", "restore it, or delete it to make all runs again"):
            return {tuple(entry[name] for name in self.fields): entry for entry in json.loads(path.read_bytes())}


def options_of(
    description: str | None, arguments: list[str] | None, results: Path = OWN_RESULTS, publishes: bool = False
) -> argparse.Namespace:
    """The options of every study: how many runs at a time, the results folder, and whether to publish what is there."""
    parser = argparse.ArgumentParser(description=description)
    jobs = local_launcher.default_jobs(2)
    parser.add_argument("--jobs", type=at_least(1), default=jobs, help="runs at a time; default: one per core")
    where = f"folder to write to; runs that are recorded there are not made again; default: {results}"
    parser.add_argument("--results", type=Path, default=results, help=where)
    if publishes:
        parser.add_argument("--publish", action="store_true", help="make no runs: add the recorded ones to results/")
    return parser.parse_args(arguments)


def make_missing(
    runs: Sequence[GridRun], jobs: int, lock: int, threads: int | None = None, on_end: OnEnd = lambda _: None
) -> None:
    """Make the runs that are missing; SystemExit if one failed.

    Args:
        runs: of the study.
        jobs: runs at a time.
        lock: of the study's folder, which the processes inherit.
        threads: of each run; None: its part of the cores.
        on_end: called when a run has ended.
    """
    statuses = [_placed(run) for run in runs]
    waiting = [status for status in statuses if status.result is None]
    if waiting:
        title = f"{len(waiting)} runs to train, {len(statuses) - len(waiting)} already finished"
        launcher = local_launcher.LocalLauncher(jobs, threads or local_launcher.threads_per_job(jobs), lock)
        problems = make(launcher, waiting, title, on_end)
        if problems:
            sys.exit("\n".join(f"{run} failed: {why}" for run, why in problems.items()))


def _placed(run: GridRun) -> RunStatus:
    """Save the run's config, which reserves its folder, and return its status."""
    status = status_of(run)
    if not (status.folder / CONFIG).is_file():
        save_config(status.folder, status.config)
    return status
