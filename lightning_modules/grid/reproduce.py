"""bash reproduce.sh: train the grid of Table 1, measure, and write the artefacts."""

from __future__ import annotations

import shutil
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning_modules.grid.options import RESULTS, Options, parse_options
from lightning_modules.run.lock import locked

if TYPE_CHECKING:
    from lightning_modules.grid.display import GridDisplay
    from lightning_modules.grid.estimate import Cost
    from lightning_modules.grid.plan import GridRun, Placed

PAPER = "paper.json"


def main(arguments: list[str] | None = None) -> int:
    """Entry point: 0, or 1 if a run failed, 2 after a mistake told in one sentence, 130 when interrupted."""
    arguments = sys.argv[1:] if arguments is None else arguments
    options = parse_options(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        _check_writable(options.results)
        with locked(options.results) as lock:
            return reproduce(options, lock, _as_typed(arguments))
    except KeyboardInterrupt:
        return _say("interrupted; the same command continues from the last checkpoints", 130)
    except (OSError, ValueError) as error:
        return _say(" ".join(str(error).split()), 2)
    except Exception as error:
        from lightning_modules.complaints import mistake_of_the_program

        return _say(mistake_of_the_program(error), 1)


def reproduce(options: Options, lock: int, command: str) -> int:
    """All of it, the lock being held."""
    started = time.monotonic()
    print("preparing ...", file=sys.stderr, flush=True)
    from lightning_modules.grid.manifest import write_manifests
    from lightning_modules.grid.plan import plan, plan_extended

    start_of_a_process = time.monotonic() - started
    runs = plan(options.budget, options.seeds, options.results)
    if options.extended:
        runs += plan_extended(options.budget, options.seeds, options.results)
    configs = _read(runs)
    placed, problems = _find(configs, options.results)
    wanted = [each for each in placed if options.wants(each.run.architecture, each.run.estimator)]
    made = [each.run for each in wanted if each.result is None]
    problems.update(_train(placed, wanted, options, lock, start_of_a_process))
    again, damaged = _find({each.run: configs[each.run] for each in placed}, options.results)
    problems.update(damaged)
    finished = [each for each in again if each.result is not None]
    missing = {each.run: problems.get(each.run, "not trained yet") for each in again if each.result is None}
    absent = {**problems, **missing}
    write_manifests(options.results, command, finished, absent, made, time.monotonic() - started)
    _report(options.results)
    for run, problem in problems.items():
        print(f"reproduce.sh: {run} failed: {problem}", file=sys.stderr)
    return 1 if problems else 0


def _read(runs: Sequence[GridRun]) -> dict[GridRun, dict[str, Any]]:
    """The configs of the runs."""
    from jsonargparse import ArgumentError

    from lightning_modules.cli import fit_config

    configs = {}
    for run in runs:
        try:
            configs[run] = fit_config(list(run.arguments))
        except (ArgumentError, ValueError) as error:
            raise ValueError(f"the settings of {run} cannot be read: {error}") from error
    return configs


def _find(configs: Mapping[GridRun, dict[str, Any]], results: Path) -> tuple[list[Placed], dict[GridRun, str]]:
    """Where the runs lie and how they stand; a damaged folder is that run's problem."""
    from lightning_modules.grid.plan import find

    placed, problems = [], {}
    for run, config in configs.items():
        try:
            placed.append(find(run, config, results))
        except (ValueError, OSError) as error:
            problems[run] = str(error)
    return placed, problems


def _train(
    placed: list[Placed], wanted: list[Placed], options: Options, lock: int, start_of_a_process: float
) -> dict[GridRun, str]:
    """Make the wanted runs that are not there; answers with what went wrong."""
    from lightning_modules.grid import local as local_engine

    waiting = [each for each in wanted if each.result is None]
    done = len([each for each in placed if each.result is not None])
    steps = placed[0].steps if placed else 0
    to_make = "1 run" if len(waiting) == 1 else f"{len(waiting)} runs"
    budget = f"budget {options.budget.stem}: {steps:,} steps per run; {to_make} to make, {done} there already"
    if not waiting:
        print(budget, file=sys.stderr)
        return {}
    if options.engine == "ray":
        from lightning_modules.grid import ray_cluster as ray_engine

        threads = local_engine.threads_asked_for() or 1
        with ray_engine.connected(options.ray_address):
            jobs = ray_engine.places(threads, options.gpus_per_run)
            costs = _costs(waiting, threads, start_of_a_process)
            title = f"{budget}; on a Ray cluster"
            with _display(waiting, done, costs, jobs, title, "at this machine's pace") as (display, ordered):
                ray_engine.run_all(ordered, threads, options.gpus_per_run, display.look)
        return display.problems
    # From what the command asks for, not from what is left of it: rounding depends on the number of threads, and a run
    # that is continued must go on with as many.
    jobs = options.jobs or local_engine.default_jobs(len(wanted))
    costs = _costs(waiting, local_engine.threads_per_job(jobs), start_of_a_process)
    with _display(waiting, done, costs, jobs, budget, "on this machine") as (display, ordered):
        local_engine.run_all(ordered, jobs, lock, display.look)
    return display.problems


@contextmanager
def _display(
    waiting: list[Placed], done: int, costs: dict[GridRun, Cost], jobs: int, title: str, where: str
) -> Iterator[tuple[GridDisplay, list[Placed]]]:
    """What follows the runs, and the order to make them in."""
    from lightning_modules.grid.display import GridDisplay, duration

    if costs:  # the longest first: none is left to run alone at the end; and a whole table after each seed
        waiting = sorted(waiting, key=lambda each: (each.run.seed, -costs[each.run].total(each.steps_done)))
    display = GridDisplay(len(waiting) + done, done, waiting, costs, jobs)
    seconds = display.seconds_left()
    at_a_time = f"; {jobs} at a time" if jobs > 1 else ""
    time_needed = "" if seconds is None else f"; about {duration(seconds)} {where}, by the first steps of each"
    display.tell(title + at_a_time + time_needed)
    try:
        yield display, waiting
    finally:
        display.close()


def _costs(waiting: list[Placed], threads: int, start_of_a_process: float) -> dict[GridRun, Cost]:
    """Predicted costs, one trial per architecture and estimator; none if that fails, which the run itself will tell."""
    from lightning_modules.grid.estimate import estimate, use_threads
    from lightning_modules.run.folder import build

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


def _report(results: Path) -> None:
    from releg.report.all import write_all

    print(write_all(results))


def _check_writable(results: Path) -> None:
    """Fail before hours of training, not after."""
    trial = results / ".writable"
    try:
        results.mkdir(parents=True, exist_ok=True)
        trial.write_text("yes\n")
        trial.unlink()
    except OSError as error:
        raise OSError(
            f"cannot write to {results} ({error.strerror}), expected a folder for results; make it writable"
        ) from None
    if not (results / PAPER).is_file():
        shutil.copyfile(RESULTS / PAPER, results / PAPER)


def _as_typed(arguments: Sequence[str]) -> str:
    shown = list(arguments)
    if "--called-from" in shown:
        position = shown.index("--called-from")
        del shown[position : position + 2]
    return " ".join(["bash reproduce.sh", *shown])


def _say(sentence: str, code: int) -> int:
    print(f"reproduce.sh: {sentence}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
