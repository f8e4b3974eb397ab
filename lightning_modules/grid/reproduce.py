"""What bash reproduce.sh does: train the grid of Table 1, measure, and write the artefacts."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from jsonargparse import ArgumentError

from lightning_modules.console import quieten
from lightning_modules.grid import local_launcher, runs_per_gpu
from lightning_modules.grid.display import GridDisplay, duration
from lightning_modules.grid.estimate import Cost, estimate, use_threads
from lightning_modules.grid.manifest import kept, write_manifests
from lightning_modules.grid.options import Options
from lightning_modules.grid.plan import GridRun, RunStatus, find, plan, plan_extended
from lightning_modules.grid.published_weights import measure_variance, publish
from lightning_modules.run.settings import Settings, build
from releg.report.all import write_all
from releg.report.file_names import RUNS
from releg.report.names import LONGEST_BUDGETS, PUBLISHED_BUDGET


def reproduce(options: Options, lock: int, command: str, started: float) -> int:
    """Plan, train, collect and report; the lock is held. Returns the exit code.

    Args:
        options: what the user asked for.
        lock: the file descriptor that holds the lock on the results.
        command: what the user typed.
        started: when this process began to load, on the monotonic clock.
    """
    start_of_a_process = time.monotonic() - started
    runs = plan(options.budget, options.seeds, options.results)
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
    _publish(options)
    if options.budget.stem == PUBLISHED_BUDGET and not absent:
        measure_variance(options.results, options.jobs or local_launcher.default_jobs(len(runs)))
    print(write_all(options.results))
    print(f"written to {options.results}", file=sys.stderr)
    for run, problem in problems.items():
        print(f"reproduce.sh: {run} failed: {problem}", file=sys.stderr)
    return 1 if problems else 0


def _publish(options: Options) -> None:
    """Keep the best models: beside the published table, also those of a longer budget that are better."""
    entries = json.loads((options.results / RUNS).read_bytes())["runs"]
    if options.budget.stem == PUBLISHED_BUDGET:
        publish(options.results, entries)
    elif options.budget.stem in LONGEST_BUDGETS:
        publish(options.results.parent, entries, options.results)


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
    return (kept(options.results, found) if options.missing else found), problems


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
    if options.launcher == "ray":
        from lightning_modules.grid import ray_launcher  # Ray is an optional extra

        threads = local_launcher.threads_asked_for() or 1
        with ray_launcher.connected(options.ray_address):
            jobs = ray_launcher.places(threads, options.gpus_per_run)
            if options.gpus_per_run and (need := _gpu_memory(waiting)):
                runs_per_gpu.check_share(options.gpus_per_run, need, runs_per_gpu.total_mib())
            costs = _costs(waiting, threads, start_of_a_process)
            title = f"{budget}; on a Ray cluster"
            with _display(waiting, done, costs, jobs, title, "at this machine's pace") as (display, ordered):
                ray_launcher.run_all(ordered, threads, options.gpus_per_run, display.update)
        return display.problems
    # From what the command asks for, not from what is left of it: rounding depends on the number of threads, and a run
    # that is continued must go on with as many.
    jobs = options.jobs or local_launcher.default_jobs(len(wanted))
    return make_locally(waiting, done, jobs, lock, budget, start_of_a_process)


def make_locally(
    waiting: list[RunStatus], done: int, jobs: int, lock: int, title: str, start_of_a_process: float
) -> dict[GridRun, str]:
    """Make the runs on this machine, `jobs` at a time. Returns what went wrong."""
    if jobs > 1 and (need := _gpu_memory(waiting)):
        runs_per_gpu.check_jobs(jobs, need, runs_per_gpu.free_mib())
    costs = _costs(waiting, local_launcher.threads_per_job(jobs), start_of_a_process)
    with _display(waiting, done, costs, jobs, title, "on this machine") as (display, ordered):
        local_launcher.run_all(ordered, jobs, lock, display.update)
    return display.problems


def _gpu_memory(waiting: Sequence[RunStatus]) -> int:
    """MiB of a GPU that the largest of the runs needs; 0 if none trains on a GPU here."""
    kinds = {
        (each.run.architecture, each.run.estimator): each.config
        for each in waiting
        if runs_per_gpu.takes_gpu(each.config)
    }
    return max(map(runs_per_gpu.mib_of, kinds.values()), default=0)


@contextmanager
def _display(
    waiting: list[RunStatus], done: int, costs: dict[GridRun, Cost], jobs: int, title: str, where: str
) -> Iterator[tuple[GridDisplay, list[RunStatus]]]:
    """The display that follows the runs, and the order to make them in."""
    if costs:  # the longest first: none is left to run alone at the end; and a whole table after each seed
        waiting = sorted(waiting, key=lambda each: (each.run.seed, -costs[each.run].total(each.steps_done)))
    display = GridDisplay(len(waiting) + done, done, waiting, costs, jobs)
    seconds = display.seconds_left()
    at_a_time = f"; {jobs} at a time" if jobs > 1 else ""
    time_needed = "" if seconds is None else f"; about {duration(seconds)} {where} (estimated from the first steps)"
    display.tell(title + at_a_time + time_needed)
    try:
        yield display, waiting
    finally:
        display.close()


def _costs(waiting: list[RunStatus], threads: int, start_of_a_process: float) -> dict[GridRun, Cost]:
    """Predicted costs, from one trial per architecture and estimator. Empty if a trial fails; the run will say why."""
    quieten()
    use_threads(threads)
    kinds: dict[tuple[str, str], Cost] = {}
    try:
        _, data = build(waiting[0].config)
        data.prepare_data()
        for each in waiting:
            kind = (each.run.architecture, each.run.estimator)
            if kind not in kinds:
                kinds[kind] = estimate(each.config, data, start_of_a_process)
    except Exception as error:
        print(f"the time needed could not be estimated ({type(error).__name__}: {error})", file=sys.stderr)
        return {}
    return {each.run: kinds[each.run.architecture, each.run.estimator] for each in waiting}
