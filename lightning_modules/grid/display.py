"""Progress of the grid: one refreshed line on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TextIO

from lightning_modules.command_line.console import SECONDS_BETWEEN_LINES
from lightning_modules.grid.estimate import Cost, left_together
from lightning_modules.grid.launchers.contract import Ended, Job
from lightning_modules.grid.pace import Pace
from lightning_modules.grid.plan import GridRun, RunStatus
from lightning_modules.run.result import read_result

SECONDS_BETWEEN_REFRESHES = 0.5


class GridDisplay:
    """Follows the runs, reports those that end, and predicts how long the rest will take.

    Args:
        total: runs in all.
        done: those that were finished before.
        waiting: those to make.
        costs: predicted, by run.
        jobs: runs at a time.
        out: where to write.
    """

    def __init__(
        self,
        total: int,
        done: int,
        waiting: Sequence[RunStatus],
        costs: Mapping[GridRun, Cost],
        jobs: int,
        out: TextIO = sys.stderr,
    ) -> None:
        self._total, self._done, self._jobs, self._out = total, done, jobs, out
        self._costs = costs
        self._waiting = {status.run: status.steps_done for status in waiting}
        self._actual = self._predicted = 0.0  # seconds of the work that has ended
        self._pace = Pace()
        self._last = time.monotonic()
        self._is_terminal = out.isatty()
        self.problems: dict[GridRun, str] = {}

    def update(self, running: list[Job], ended: list[Ended]) -> None:
        """Show the state of the running jobs and report those that ended; called a few times a second."""
        for job in running:
            self._waiting.pop(job.status.run, None)
        for each in ended:
            self._waiting.pop(each.status.run, None)
            self._tell_end(each)
        every = SECONDS_BETWEEN_REFRESHES if self._is_terminal else SECONDS_BETWEEN_LINES
        if running and (ended or time.monotonic() - self._last > every):
            self._last = time.monotonic()
            self._show(self._status(running))

    def seconds_left(self, running: Sequence[Job] = ()) -> float | None:
        """Predict from the costs, corrected by how recent work compares with its prediction."""
        if not self._costs:
            return None
        left = [self._costs[run].total(done) for run, done in self._waiting.items()]
        actual, predicted = self._actual, self._predicted
        for job in running:
            cost, progress = self._costs[job.status.run], job.progress()
            if progress is None:
                left.append(max(0.0, cost.start - job.seconds) + cost.left(job.status.steps_done))
            else:
                left.append(cost.left(progress.step))
                actual += job.seconds
                predicted += cost.total(job.first_step or 0) - cost.left(progress.step)
        return self._pace.factor(actual, predicted) * left_together(left, self._jobs)

    def close(self) -> None:
        """Clear the line, so that what follows starts on its own."""
        if self._is_terminal:
            self._out.write("\r\x1b[K")
            self._out.flush()

    def _tell_end(self, ended: Ended) -> None:
        run = ended.status.run
        if ended.problem:
            self.problems[run] = ended.problem
            self.tell(f"{run} failed: {ended.problem}")
            return
        self._done += 1
        result = read_result(ended.status.folder) or {}
        if run in self._costs:
            self._actual += ended.seconds
            self._predicted += self._costs[run].total(ended.status.steps_done)
        self.tell(
            f"{run}: test NLL {-result['test/elbo']:.2f} after {result['steps']:,} steps "
            f"(best at {result['best_step']:,}), {ended.seconds / 60:.1f} min"
        )

    def _status(self, running: Sequence[Job]) -> str:
        left = self.seconds_left(running)
        parts = [f"{self._done} of {self._total} runs done" + ("" if left is None else f", {duration(left)} left")]
        for job in running:
            progress = job.progress()
            if progress is None:
                parts.append(f"{job.status.run}: starting")
            else:
                elbo = "" if progress.elbo is None else f", elbo {progress.elbo:.1f}"
                parts.append(f"{job.status.run}: step {progress.step:,} of {job.status.steps:,}{elbo}")
        return " | ".join(parts)

    def tell(self, line: str) -> None:
        """Print a line that stays."""
        self.close()
        self._out.write(f"{line}\n")
        self._out.flush()

    def _show(self, status: str) -> None:
        if not self._is_terminal:
            self.tell(status)
            return
        width = shutil.get_terminal_size().columns - 1
        self._out.write(f"\r{status[:width]}\x1b[K")
        self._out.flush()


def duration(seconds: float) -> str:
    """40 s, 12 min, 3.5 h, 4.1 days."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"
