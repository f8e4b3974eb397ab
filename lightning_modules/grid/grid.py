"""The grid of Table 1: makes the runs that are missing, measures, and writes the tables after each run."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path

import torch
from jsonargparse import ArgumentError

from lightning_modules.command_line.console import quieten
from lightning_modules.grid.closing_words import closing_words
from lightning_modules.grid.estimate import Cost, estimate, left_together
from lightning_modules.grid.launchers.contract import Ended, Job, Launcher
from lightning_modules.grid.launchers.local import default_jobs
from lightning_modules.grid.options import LAUNCHERS, Options, is_shipped
from lightning_modules.grid.plan import GridRun, RunStatus, cells, find, plan, read_settings
from lightning_modules.grid.progress import GridProgress, duration
from lightning_modules.grid.record import recorded, write_record
from lightning_modules.run.checkpoints import BEST
from lightning_modules.run.settings import Settings, build
from releg.files import write_json
from releg.records.csv_formats import read_variances
from releg.records.names import FIGURE1_ARCHITECTURE, FIGURE1_IMAGES, FIGURE1_SAMPLES, PUBLISHED_BUDGET
from releg.report.curves import MEASURED_RUN, measured_run, measurement_file, read_measured
from releg.report.every_page import write_every_page
from releg.report.table1 import read_paper

MEASURED_CELL = FIGURE1_ARCHITECTURE, "lr"
MOST_TO_COMPILE = 8  # kinds of runs, as the grid has: those of a study would take too long before the first starts
SECONDS_TO_LOAD = time.process_time()  # most of it for the modules above; the process of a run takes as long

Problems = dict[GridRun, str]  # what went wrong with a run
OnEnd = Callable[[Problems], object]  # called after a run has ended, with all problems so far


class Grid:
    """The runs that a command asks for, and the tables made from them.

    Args:
        options: what the user asked for.
        lock: the file descriptor of the lock on the results, which the processes of the runs inherit.
    """

    def __init__(self, options: Options, lock: int) -> None:
        self.options, self.lock = options, lock
        self.problems: Problems = {}
        self._settings = {run: _read(run) for run in plan(options.budget, options.seeds, options.results, options.only)}
        recorded(options.results)  # ValueError if one is damaged: now, not after the first run
        read_paper(options.results)

    def train(self) -> None:
        """Make the runs that are not finished, in the order of the table, and write the tables after each of them."""
        found = self._find()
        waiting = [status for status in found if status.result is None]
        steps = max((status.steps for status in found), default=0)
        to_train = f"{len(waiting)} of {len(found)} runs to train, up to {steps:,} steps each"
        title = f"budget {self.options.budget.stem}: {to_train}"
        if not waiting:
            print(title, file=sys.stderr)
            return
        with self._launcher() as launcher:
            self.problems |= make(launcher, waiting, title, self._write_if_possible, self._then)

    def measure(self) -> bool:
        """Measure Figure 1's last point, the gradient variance on all training images, if the command ends with it.

        From the checkpoint of the first LR run, which has its baselines. In a process of its own, which continues an
        interrupted measurement; `variance/lr.json` says of which run the numbers are, so none is measured twice.
        Returns whether something was measured.
        """
        results = self.options.results
        runs = sorted((run for run in recorded(results) if run.cell == MEASURED_CELL), key=lambda run: run.seed)
        output = measurement_file(results, MEASURED_CELL[1])
        if not self._measures or not runs or _is_measured(output, runs[0].trained):
            return False
        output.parent.mkdir(parents=True, exist_ok=True)
        what = f"SBN({FIGURE1_ARCHITECTURE}) lr seed {runs[0].seed}"
        print(f"measuring the gradient variance of {what} on {FIGURE1_IMAGES:,} images", file=sys.stderr, flush=True)
        words = ["--ckpt", str(runs[0].folder / BEST), "--output", str(output), "--jobs", str(self._jobs)]
        words += ["--num-images", str(FIGURE1_IMAGES), "--samples-per-image", str(FIGURE1_SAMPLES)]
        command = [sys.executable, "-m", "lightning_modules.cli", "variance", *words]
        if code := subprocess.run(command, check=False, stdout=sys.stderr).returncode:
            raise ValueError(
                f"the gradient variance was not measured (exit code {code}); the same command continues it"
            )
        write_json(output.with_suffix(".json"), {**read_measured(output), MEASURED_RUN: runs[0].trained})
        return True

    def write(self) -> None:
        """Write runs.json, tables and figures from what is there."""
        found = self._find()
        missing = {status.run: "not trained yet" for status in found if status.result is None} | self.problems
        write_record(self.options.results, found, missing)
        write_every_page(self.options.results)

    def _write_if_possible(self, problems: Problems) -> None:
        """Write the tables while other runs are training: what prevents it is told and ends none of them."""
        self.problems |= problems
        try:
            self.write()
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            print(f"the tables could not be written yet ({reason})", file=sys.stderr, flush=True)

    def _find(self) -> list[RunStatus]:
        """The runs' state on disk. A damaged folder is a problem of that run only."""
        found = []
        for run, settings in self._settings.items():
            try:
                found.append(find(run, settings))
            except (ValueError, OSError) as error:
                self.problems[run] = str(error)
        return found

    def _launcher(self) -> AbstractContextManager[Launcher]:
        module = import_module(f"{__package__}.{LAUNCHERS[self.options.launcher]}")
        context: AbstractContextManager[Launcher] = module.opened(self.options, len(self._settings), self.lock)
        return context

    @property
    def _jobs(self) -> int:
        """How many processes measure."""
        return self.options.jobs or default_jobs(len(self._settings))

    @property
    def _measures(self) -> bool:
        return is_shipped(self.options.budget, PUBLISHED_BUDGET) and MEASURED_CELL in cells(self.options.only)

    def _then(self, costs: dict[GridRun, Cost]) -> str:
        """How long the measurement takes after the runs."""
        measured = [cost for run, cost in costs.items() if (run.architecture, run.estimator) == MEASURED_CELL]
        if not measured or not self._measures:
            return ""
        seconds = measured[0].sample * FIGURE1_IMAGES * FIGURE1_SAMPLES / self._jobs
        return f"; then about {duration(seconds)} for the gradient variances of Figure 1 on all training images"


def reproduce(grid: Grid) -> int:
    """Train, measure and report. Returns the exit code."""
    grid.train()
    grid.write()
    if grid.measure():
        grid.write()
    print(closing_words(grid.options.results, grid.options.budget.stem), flush=True)
    for run, problem in grid.problems.items():
        print(f"reproduce.sh: {run} failed: {problem}", file=sys.stderr)
    return 1 if grid.problems else 0


def make(
    launcher: Launcher,
    waiting: Sequence[RunStatus],
    title: str,
    on_end: OnEnd = lambda _: None,
    then: Callable[[dict[GridRun, Cost]], str] = lambda _: "",
) -> Problems:
    """Make the runs, in their order, and tell how long it takes. Returns what went wrong.

    Args:
        launcher: makes them.
        waiting: the runs.
        title: to print first.
        on_end: what to do when a run has ended.
        then: what to add about the time, given the costs.
    """
    costs = _costs(waiting, launcher.threads)
    progress = GridProgress(waiting, costs)
    left = left_together([costs[status.run].total(status.steps_done) for status in waiting if costs], launcher.jobs)
    time_needed = f"about {duration(left)} at this machine's pace (estimated from the first steps)" if costs else ""
    at_a_time = f"{launcher.jobs} at a time" if launcher.jobs > 1 else ""
    progress.tell("; ".join(filter(None, [title, launcher.place, at_a_time, time_needed])) + then(costs))

    def update(running: list[Job], ended: list[Ended]) -> None:
        progress.update(running, ended)
        if ended:
            on_end(progress.problems)

    try:
        launcher.run_all(waiting, update)
    finally:
        progress.close()
    return progress.problems


def _read(run: GridRun) -> Settings:
    try:
        return read_settings(run)
    except (ArgumentError, ValueError) as error:
        raise ValueError(f"the settings of {run} cannot be read: {error}") from error


def _is_measured(output: Path, trained: str) -> bool:
    images = {row["num_images"] for row in read_variances(output)}
    return images == {str(FIGURE1_IMAGES)} and measured_run(output) == trained


def _costs(waiting: Sequence[RunStatus], threads: int) -> dict[GridRun, Cost]:
    """Predicted costs, from one trial per architecture and estimator. Empty if a trial fails; the run will say why."""
    quieten()
    torch.set_num_threads(threads)  # as many as a job will have, so that the timing is right
    kinds = {(status.run.architecture, status.run.estimator): status.config for status in waiting}
    compiles = len(kinds) <= MOST_TO_COMPILE
    try:
        _, data = build(waiting[0].config)
        costs = {kind: estimate(config, data, SECONDS_TO_LOAD, compiles) for kind, config in kinds.items()}
    except Exception as error:
        print(f"the time needed could not be estimated ({type(error).__name__}: {error})", file=sys.stderr)
        return {}
    return {status.run: costs[status.run.architecture, status.run.estimator] for status in waiting}
