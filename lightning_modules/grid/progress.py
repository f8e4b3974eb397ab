"""Progress of the grid: a bar on a terminal, and a line for each run that has ended."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TextIO

from tqdm import tqdm

from lightning_modules.grid.estimate import Cost
from lightning_modules.grid.launchers.contract import Ended, Job
from lightning_modules.grid.plan import GridRun, RunStatus
from lightning_modules.run.result import read_result

BAR = "{percentage:3.0f}% |{bar:20}| {elapsed}<{remaining}{postfix}"


class GridProgress:
    """Follows the runs and tells which have ended.

    The bar counts predicted seconds of work, so the time left that it shows follows the pace of the work so far.

    Args:
        waiting: the runs to make.
        costs: of each of them; without any, the bar counts steps.
        out: where to write.
    """

    def __init__(self, waiting: Sequence[RunStatus], costs: Mapping[GridRun, Cost], out: TextIO = sys.stderr) -> None:
        self._costs, self._out = costs, out
        self._left = {status.run: self._work_left(status, status.steps_done) for status in waiting}
        self._count, self._total = 0, sum(self._left.values())
        self._bar = tqdm(total=self._total, file=out, disable=not out.isatty(), leave=False, bar_format=BAR)
        self.problems: dict[GridRun, str] = {}

    def update(self, running: Sequence[Job], ended: Sequence[Ended]) -> None:
        """Show the state of the running jobs and report those that ended; called a few times a second."""
        for end in ended:
            self._left[end.status.run] = 0.0
            self._tell_end(end)
        states = [self._state(job) for job in running]
        self._bar.set_postfix_str(" | ".join(states), refresh=False)
        self._bar.update(self._total - sum(self._left.values()) - self._bar.n)

    def tell(self, line: str) -> None:
        """Print a line that stays."""
        tqdm.write(line, file=self._out)

    def close(self) -> None:
        """Remove the bar."""
        self._bar.close()

    def _work_left(self, status: RunStatus, step: int) -> float:
        return self._costs[status.run].left(step) if self._costs else float(status.steps - step)

    def _state(self, job: Job) -> str:
        run, progress = job.status.run, job.progress()
        if progress is None:
            return f"{run}: starting"
        self._left[run] = self._work_left(job.status, progress.step)
        elbo = "" if progress.elbo is None else f", elbo {progress.elbo:.1f}"
        return f"{run}: step {progress.step:,} of {job.status.steps:,}{elbo}"

    def _tell_end(self, ended: Ended) -> None:
        run = ended.status.run
        self._count += 1
        if ended.problem:
            self.problems[run] = ended.problem
            self.tell(f"{run} failed: {ended.problem}")
            return
        result = read_result(ended.status.folder) or {}
        self.tell(
            f"{self._count} of {len(self._left)}: {run}: negative test elbo {-result['test/elbo']:.2f} after "
            f"{result['steps']:,} steps (best at {result['best_step']:,}), {ended.seconds / 60:.1f} min"
        )


def duration(seconds: float) -> str:
    """40 s, 12 min, 3.5 h, 4.1 days."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"
