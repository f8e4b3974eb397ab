"""What a grid leaves behind: runs.json, the best models and the reports, written anew whenever a run has ended."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from lightning_modules.grid.manifest import NOT_TRAINED, kept, write_manifests
from lightning_modules.grid.options import ARCHITECTURE_OVERLAYS, Options, is_shipped
from lightning_modules.grid.plan import GridRun, RunStatus, find
from lightning_modules.grid.published_weights import publish
from lightning_modules.run.settings import Settings
from releg.records.file_names import RUNS
from releg.records.names import LONGEST_BUDGETS, PUBLISHED_BUDGET
from releg.report.all import write_all

Problems = dict[GridRun, str]  # what went wrong with a run


class Written(NamedTuple):
    """What the user gets to see of it."""

    tables: str
    problems: Problems


@dataclass
class Books:
    """Keeps account of the runs of a command.

    Args:
        options: what the user asked for.
        settings: of all runs of the grid.
        command: what the user typed.
        started: when this process began to load, on the monotonic clock.
        to_make: the runs that this command makes, or goes on with.
        problems: what went wrong with the runs of this command so far.
    """

    options: Options
    settings: Mapping[GridRun, Settings]
    command: str
    started: float
    to_make: set[GridRun] = field(default_factory=set)
    problems: Problems = field(default_factory=dict)

    def find(self) -> tuple[list[RunStatus], Problems]:
        """The runs' state on disk, or in the manifest if asked for. A damaged folder is a problem of that run only."""
        found, problems = [], {}
        for run, given in self.settings.items():
            try:
                found.append(find(run, given))
            except (ValueError, OSError) as error:
                problems[run] = str(error)
        found = kept(self.options.results, found) if self.options.missing else found
        return [each for each in found if self._in_table(each)], problems

    def write(self, problems: Mapping[GridRun, str] | None = None) -> Written:
        """Write everything from what is there.

        Args:
            problems: of runs that this command tried to make, if some came since the last call.
        """
        results = self.options.results
        self.problems |= problems or {}
        found, damaged = self.find()
        known = {**self.problems, **damaged}
        problems = {run: known[run] for run in self.settings if run in known}  # in the order of the tables
        finished = [each for each in found if each.result is not None]
        begun = [each for each in found if each.result is None and each.steps_done]
        absent = {each.run: NOT_TRAINED for each in found if each.result is None and each not in begun}
        made = self.to_make & {*problems, *(each.run for each in finished)}
        elapsed = time.monotonic() - self.started
        write_manifests(results, self.command, finished, {**absent, **problems}, made, elapsed, begun)
        if is_shipped(self.options.budget, PUBLISHED_BUDGET, *LONGEST_BUDGETS):
            publish(results, json.loads((results / RUNS).read_bytes())["runs"])
        return Written(write_all(results), problems)

    def write_if_possible(self, problems: Mapping[GridRun, str] | None = None) -> None:
        """Write everything while other runs are training, or after an interruption; what prevents it ends nothing."""
        try:
            self.write(problems)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            print(f"the tables could not be written yet ({reason})", file=sys.stderr, flush=True)

    def _in_table(self, status: RunStatus) -> bool:
        """Whether the table has a place for it: always one of the paper's nets, another one if it was asked for."""
        run = status.run
        return (
            run.architecture in ARCHITECTURE_OVERLAYS
            or status.result is not None
            or self.options.wants(run.architecture, run.estimator)
        )
