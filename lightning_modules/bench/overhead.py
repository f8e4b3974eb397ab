"""What the Trainer costs: steps per second of `releg fit` against a bare loop of the same step on the same data."""

from __future__ import annotations

import logging
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from torch import Tensor

from lightning_modules.bench.floor import Floor, floor_of
from lightning_modules.bench.rounds import REFERENCE, Rounds, Turn, quartiles, summary
from lightning_modules.bench.steps import OWN, Problem, available
from lightning_modules.bench.stopwatch import Stopwatch
from lightning_modules.bench.table import Bench, Row, endless
from lightning_modules.command_line.console import say
from lightning_modules.run import life
from lightning_modules.run.identity import identity_of
from lightning_modules.run.settings import Settings
from lightning_modules.run.signals import Signals
from lightning_modules.training_step import TrainingStep, module_for
from releg.architecture import architecture_name

LAYERS = (200, 200)
CRN = ("--config", "estimator/common_random_numbers.yaml")
FIT_ARGUMENTS = {  # what `releg fit` is told for each estimator
    "lr": ["--config", "estimator/likelihood_ratio.yaml"],
    **{f"crn_{engine}": [*CRN, "--model.estimator.init_args.engine", engine] for engine in ("cpu", "triton")},
}
Floors = Mapping[str, Floor]


def trainer_rounds(name: str, bench: Bench, problem: Problem, floors: Floors, steps: int) -> Rounds:
    """Blocks of steps through the Trainer, validation off, at the problem's weights."""
    watch = Stopwatch(name, floors, bench.batches, steps)
    with tempfile.TemporaryDirectory(prefix="releg-bench-") as folder, silence():
        arguments = [
            *("--config", "base.yaml", *FIT_ARGUMENTS[name]),
            *("--model.layers", str(list(problem.layers)), "--seed_everything", str(bench.seed)),
            *("--results_dir", folder),
            *("--trainer.max_steps", str(watch.last), "--trainer.limit_val_batches", "0"),
            *("--trainer.accelerator", bench.device),
        ]
        settings = Settings("fit", arguments)
        built = settings.build()
        built.module.model.load_state_dict(problem.weights)
        trainer = life.make_trainer(built.trainer, Path(folder), life.make_loggers(Path(folder)))
        _, _, callbacks = life.training_callbacks(
            identity_of(settings.config, built.module, bench.data), 60.0, Signals()
        )
        trainer.callbacks.extend([*callbacks, watch])  # type: ignore[attr-defined]
        trainer.fit(built.module, datamodule=bench.data)
    bench.data.trainer = None  # whoever asks next gets the stream from its beginning
    return watch.rounds


def bare_rounds(name: str, bench: Bench, problem: Problem, floors: Floors, steps: int) -> Rounds:
    """Blocks of steps of a loop that only fetches batches and takes steps."""
    module = module_for(problem.layers, OWN[name](), problem.weights, bench.seed, bench.device)
    step = TrainingStep(module, bench.seed)
    watch = Stopwatch(name, floors, bench.batches, steps)
    watch.freeze([step.optimizer])
    batches: Iterator[Tensor] = endless(bench.data)
    for number in range(1, watch.last + 1):
        step(next(batches).to(bench.device))
        watch.tick(number)
    return watch.rounds


def measure_overhead(bench: Bench, steps: int, repetitions: int) -> list[Row]:
    """One row per estimator. Bare loop and Trainer alternate, and so does which of them goes first."""
    rows: list[Row] = []
    problem = bench.problem(LAYERS)
    names = available(tuple(FIT_ARGUMENTS), bench.device)
    floors = bench.floors(problem, names)
    for name in names:
        say(f"overhead of the Trainer: {name}, {repetitions} times {steps} steps each way")
        bare: list[Rounds] = []
        trainer: list[Rounds] = []
        for repetition in range(repetitions):
            ways = [(bare, bare_rounds), (trainer, trainer_rounds)]
            for rounds, measure in ways if repetition % 2 == 0 else reversed(ways):
                rounds.append(measure(name, bench, problem, floors, steps))
        rows.append(
            {
                "architecture": architecture_name(LAYERS),
                "estimator": name,
                **overhead_columns(name, bare, trainer),
                "steps": steps,
            }
        )
    return rows


def through_trainer(bench: Bench, problem: Problem, steps: int, repetitions: int) -> dict[str, Row]:
    """The columns of each estimator's row in bench.json: its time through the Trainer, against LR's and its floor."""
    names = available(tuple(FIT_ARGUMENTS), bench.device)
    floors = bench.floors(problem, names)
    rounds: dict[str, Rounds] = {name: [] for name in names}
    for repetition in range(repetitions):
        for name in names if repetition % 2 == 0 else names[::-1]:
            rounds[name] += trainer_rounds(name, bench, problem, floors, steps)
    return {name: summary(in_rounds_with_lr(rounds, name), name) for name in names}


def in_rounds_with_lr(rounds: Mapping[str, Rounds], name: str) -> Rounds:
    """The estimator's rounds, each with the time that an LR step would take in it: LR's multiple of its floor."""
    if name == REFERENCE:
        return rounds[name]
    multiple, floor = statistics.median(in_floors(rounds[REFERENCE], REFERENCE)), floor_of(REFERENCE)
    return [{REFERENCE: Turn(multiple * each[floor].seconds, {}), **each} for each in rounds[name]]


def in_floors(rounds: Rounds, name: str) -> list[float]:
    """The estimator's times as multiples of the floor's in the same round."""
    return [each[name].seconds / each[floor_of(name)].seconds for each in rounds]


def overhead_columns(name: str, bare: Sequence[Rounds], trainer: Sequence[Rounds]) -> Row:
    """Medians over all blocks; the loss is that of speed in floors, within each repetition."""
    lost = [
        1 - statistics.median(in_floors(fast, name)) / statistics.median(in_floors(slow, name))
        for fast, slow in zip(bare, trainer, strict=True)
    ]
    return {
        "bare_steps_per_second": steps_per_second(name, bare),
        "trainer_steps_per_second": steps_per_second(name, trainer),
        "lost": round(statistics.median(lost), 4),
        "lost_quartiles": quartiles(lost),
        "repetitions": len(lost),
    }


def steps_per_second(name: str, repetitions: Sequence[Rounds]) -> float:
    """The median over all blocks."""
    return round(statistics.median(1 / each[name].seconds for rounds in repetitions for each in rounds), 2)


@contextmanager
def silence() -> Iterator[None]:
    """Suppress progress messages during a trial run."""
    logger = logging.getLogger("releg")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)
