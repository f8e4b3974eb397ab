"""What bash reproduce.sh does: train the grid of Table 1, measure, and write the artefacts."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from pathlib import Path

import torch
from jsonargparse import ArgumentError

from lightning_modules.command_line.console import quieten
from lightning_modules.grid.books import Books
from lightning_modules.grid.display import GridDisplay, duration
from lightning_modules.grid.estimate import Cost, estimate
from lightning_modules.grid.figure1_measurement import MEASURED_CELL, measure_variance, measures_at_the_end
from lightning_modules.grid.launchers import local as local_launcher
from lightning_modules.grid.launchers.contract import Ended, Job, Launcher
from lightning_modules.grid.manifest import check_manifests
from lightning_modules.grid.options import LAUNCHERS, OTHER_ARCHITECTURES, Options
from lightning_modules.grid.plan import GridRun, RunStatus, plan, plan_extended
from lightning_modules.run.settings import Settings, build
from releg.records.names import FIGURE1_IMAGES, FIGURE1_SAMPLES
from releg.records.runs import read_runs

OnEnd = Callable[[Mapping[GridRun, str]], object]  # called after a run has ended, with what went wrong so far


def reproduce(options: Options, lock: int, command: str, started: float) -> int:
    """Plan, train, collect and report; the lock is held. Returns the exit code.

    Args:
        options: what the user asked for.
        lock: the file descriptor that holds the lock on the results.
        command: what the user typed.
        started: when this process began to load, on the monotonic clock.
    """
    start_of_a_process = time.monotonic() - started
    check_manifests(options.results)
    runs = plan(options.budget, options.seeds, options.results)
    runs += plan(options.budget, options.seeds, options.results, OTHER_ARCHITECTURES)
    if options.extended:
        runs += plan_extended(options.budget, options.seeds, options.results)
    books = Books(options, _read(runs), command, started)
    found, damaged = books.find()
    wanted = [each for each in found if options.wants(each.run.architecture, each.run.estimator)]
    books.to_make.update(each.run for each in wanted if each.result is None)
    jobs = (options.jobs or local_launcher.default_jobs(len(runs))) if measures_at_the_end(options) else None
    try:
        problems = _train(found, wanted, options, lock, start_of_a_process, books.write_if_possible, jobs)
    except KeyboardInterrupt:
        books.write_if_possible()  # how far the runs are
        raise
    tables, problems = books.write({**damaged, **problems})
    print(tables, flush=True)
    if jobs is not None:
        measure_variance(options.results, jobs)
        books.write(problems)
    print(f"written to {options.results}{_trained_elsewhere(options.results)}", file=sys.stderr)
    for run, problem in problems.items():
        print(f"reproduce.sh: {run} failed: {problem}", file=sys.stderr)
    return 1 if problems else 0


def _trained_elsewhere(results: Path) -> str:
    """How many runs of the table this folder only records: without it, they could be taken for the user's own."""
    runs = read_runs(results)
    elsewhere = sum(not run.is_here for run in runs)
    return f"; {elsewhere} of the table's {len(runs)} runs were trained elsewhere" if elsewhere else ""


def _read(runs: Sequence[GridRun]) -> dict[GridRun, Settings]:
    """The settings of the runs."""
    settings = {}
    for run in runs:
        try:
            settings[run] = Settings("fit", list(run.arguments))
        except (ArgumentError, ValueError) as error:
            raise ValueError(f"the settings of {run} cannot be read: {error}") from error
    return settings


def _train(
    found: list[RunStatus],
    wanted: list[RunStatus],
    options: Options,
    lock: int,
    start_of_a_process: float,
    on_end: OnEnd | None = None,
    measurement_jobs: int | None = None,
) -> dict[GridRun, str]:
    """Make the wanted runs that have no result yet. Returns what went wrong."""
    waiting = [each for each in wanted if each.result is None]
    done = len([each for each in found if each.result is not None])
    steps = found[0].steps if found else 0
    to_train = "1 run" if len(waiting) == 1 else f"{len(waiting)} runs"
    budget = f"budget {options.budget.stem}: {steps:,} steps per run; {to_train} to train, {done} already finished"
    if not waiting:
        print(budget, file=sys.stderr)
        return {}
    with _launcher(options, len(wanted), lock) as launcher:
        return _make(launcher, waiting, done, budget, start_of_a_process, on_end, measurement_jobs)


def _launcher(options: Options, runs: int, lock: int) -> AbstractContextManager[Launcher]:
    module = import_module(f"{__package__}.{LAUNCHERS[options.launcher].module}")
    context: AbstractContextManager[Launcher] = module.opened(options, runs, lock)
    return context


def make_locally(
    waiting: list[RunStatus], done: int, jobs: int, lock: int, title: str, start_of_a_process: float
) -> dict[GridRun, str]:
    """Make the runs on this machine, `jobs` at a time. Returns what went wrong."""
    return _make(local_launcher.launcher(jobs, lock), waiting, done, title, start_of_a_process)


def _make(
    launcher: Launcher,
    waiting: list[RunStatus],
    done: int,
    title: str,
    start_of_a_process: float,
    on_end: OnEnd | None = None,
    measurement_jobs: int | None = None,
) -> dict[GridRun, str]:
    costs = _costs(waiting, launcher.threads, start_of_a_process)
    title = f"{title}; {launcher.place}" if launcher.place else title
    then = _last_measurement(costs, measurement_jobs) if measurement_jobs else ""
    with _display(waiting, done, costs, launcher, title, then) as (display, ordered):

        def update(running: list[Job], ended: list[Ended]) -> None:
            display.update(running, ended)
            if ended and on_end is not None:
                on_end(display.problems)

        launcher.run_all(ordered, update)
    return display.problems


def _last_measurement(costs: Mapping[GridRun, Cost], jobs: int) -> str:
    """How long Figure 1's measurement on all training images takes after the runs; empty if they lack its run."""
    measured = [
        cost for run, cost in costs.items() if (run.architecture, run.estimator, run.seed) == (*MEASURED_CELL, 0)
    ]
    if not measured:
        return ""
    seconds = measured[0].sample * FIGURE1_IMAGES * FIGURE1_SAMPLES / jobs
    return f"; then about {duration(seconds)} for the gradient variances of Figure 1 on all training images"


@contextmanager
def _display(
    waiting: list[RunStatus], done: int, costs: dict[GridRun, Cost], launcher: Launcher, title: str, then: str
) -> Iterator[tuple[GridDisplay, list[RunStatus]]]:
    """The display that follows the runs, and the order to make them in."""
    jobs, pace = launcher.jobs, launcher.pace
    if costs:  # the longest first: none is left to run alone at the end; and a whole table after each seed
        waiting = sorted(waiting, key=lambda each: (each.run.seed, -costs[each.run].total(each.steps_done)))
    display = GridDisplay(len(waiting) + done, done, waiting, costs, jobs)
    seconds = display.seconds_left()
    at_a_time = f"; {jobs} at a time" if jobs > 1 else ""
    time_needed = "" if seconds is None else f"; about {duration(seconds)} {pace} (estimated from the first steps)"
    display.tell(title + at_a_time + time_needed + then)
    try:
        yield display, waiting
    finally:
        display.close()


def _costs(waiting: list[RunStatus], threads: int, start_of_a_process: float) -> dict[GridRun, Cost]:
    """Predicted costs, from one trial per architecture and estimator. Empty if a trial fails; the run will say why."""
    quieten()
    torch.set_num_threads(threads)  # as many as a job will have, so that the timing is right
    kinds: dict[tuple[str, str], Cost] = {}
    try:
        _, data = build(waiting[0].config)
        for each in waiting:
            kind = (each.run.architecture, each.run.estimator)
            if kind not in kinds:
                kinds[kind] = estimate(each.config, data, start_of_a_process)
    except Exception as error:
        print(f"the time needed could not be estimated ({type(error).__name__}: {error})", file=sys.stderr)
        return {}
    return {each.run: kinds[each.run.architecture, each.run.estimator] for each in waiting}
