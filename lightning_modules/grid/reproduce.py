"""What bash reproduce.sh does: train the grid of Table 1, measure, and write the artefacts."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module

import torch
from jsonargparse import ArgumentError

from lightning_modules.console import quieten
from lightning_modules.grid import local_launcher
from lightning_modules.grid.display import GridDisplay, duration
from lightning_modules.grid.estimate import Cost, estimate
from lightning_modules.grid.jobs import Launcher
from lightning_modules.grid.manifest import check_manifests, kept, write_manifests
from lightning_modules.grid.options import ARCHITECTURE_OVERLAYS, LAUNCHERS, OTHER_ARCHITECTURES, Options, budget_file
from lightning_modules.grid.plan import GridRun, RunStatus, find, plan, plan_extended
from lightning_modules.grid.published_weights import measure_variance, publish
from lightning_modules.run.settings import Settings, build
from releg.naming.file_names import RUNS
from releg.naming.names import LONGEST_BUDGETS, PUBLISHED_BUDGET
from releg.report.all import write_all


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
    settings = _read(runs)
    found, problems = _find(settings, options)
    wanted = [each for each in found if options.wants(each.run.architecture, each.run.estimator)]
    made = [each.run for each in wanted if each.result is None]
    problems.update(_train(found, wanted, options, lock, start_of_a_process))
    again, damaged = _find({each.run: settings[each.run] for each in found}, options)
    problems.update(damaged)
    finished = [each for each in again if each.result is not None]
    missing = {each.run: problems.get(each.run, "not trained yet") for each in again if each.result is None}
    absent = {**problems, **missing}
    write_manifests(options.results, command, finished, absent, made, time.monotonic() - started)
    entries = json.loads((options.results / RUNS).read_bytes())["runs"]
    if _is_shipped(options, PUBLISHED_BUDGET, *LONGEST_BUDGETS):
        publish(options.results, entries)
    print(write_all(options.results), flush=True)
    if _is_shipped(options, PUBLISHED_BUDGET) and not options.report and not absent:
        measure_variance(options.results, entries, options.jobs or local_launcher.default_jobs(len(runs)))
        write_all(options.results)
    print(f"written to {options.results}", file=sys.stderr)
    for run, problem in problems.items():
        print(f"reproduce.sh: {run} failed: {problem}", file=sys.stderr)
    return 1 if problems else 0


def _is_shipped(options: Options, *budgets: str) -> bool:
    """Whether the budget is one of these, and not a user's own of the same name."""
    return options.budget in [budget_file(name) for name in budgets]


def _read(runs: Sequence[GridRun]) -> dict[GridRun, Settings]:
    """The settings of the runs."""
    settings = {}
    for run in runs:
        try:
            settings[run] = Settings("fit", list(run.arguments))
        except (ArgumentError, ValueError) as error:
            raise ValueError(f"the settings of {run} cannot be read: {error}") from error
    return settings


def _find(settings: Mapping[GridRun, Settings], options: Options) -> tuple[list[RunStatus], dict[GridRun, str]]:
    """The runs' state on disk, or in the manifest if asked for. A damaged folder is a problem of that run only."""
    found, problems = [], {}
    for run, given in settings.items():
        try:
            found.append(find(run, given))
        except (ValueError, OSError) as error:
            problems[run] = str(error)
    found = kept(options.results, found) if options.missing else found
    return [each for each in found if _in_table(each, options)], problems


def _in_table(status: RunStatus, options: Options) -> bool:
    """Whether the table has a place for it: always one of the paper's nets, another one if it was asked for."""
    run = status.run
    return (
        run.architecture in ARCHITECTURE_OVERLAYS
        or status.result is not None
        or options.wants(run.architecture, run.estimator)
    )


def _train(
    found: list[RunStatus], wanted: list[RunStatus], options: Options, lock: int, start_of_a_process: float
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
        return _make(launcher, waiting, done, budget, start_of_a_process)


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
    launcher: Launcher, waiting: list[RunStatus], done: int, title: str, start_of_a_process: float
) -> dict[GridRun, str]:
    launcher.check_memory(waiting)
    costs = _costs(waiting, launcher.threads, start_of_a_process)
    title = f"{title}; {launcher.place}" if launcher.place else title
    with _display(waiting, done, costs, launcher.jobs, title, launcher.pace) as (display, ordered):
        launcher.run_all(ordered, display.update)
    return display.problems


@contextmanager
def _display(
    waiting: list[RunStatus], done: int, costs: dict[GridRun, Cost], jobs: int, title: str, pace: str
) -> Iterator[tuple[GridDisplay, list[RunStatus]]]:
    """The display that follows the runs, and the order to make them in."""
    if costs:  # the longest first: none is left to run alone at the end; and a whole table after each seed
        waiting = sorted(waiting, key=lambda each: (each.run.seed, -costs[each.run].total(each.steps_done)))
    display = GridDisplay(len(waiting) + done, done, waiting, costs, jobs)
    seconds = display.seconds_left()
    at_a_time = f"; {jobs} at a time" if jobs > 1 else ""
    time_needed = "" if seconds is None else f"; about {duration(seconds)} {pace} (estimated from the first steps)"
    display.tell(title + at_a_time + time_needed)
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
