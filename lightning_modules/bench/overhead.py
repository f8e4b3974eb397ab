"""What the Trainer costs: steps per second of `releg fit` against a bare loop of the same step on the same data."""

from __future__ import annotations

import logging
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from torch import Tensor

from lightning_modules.bench.device import now
from lightning_modules.bench.floor import make_floors
from lightning_modules.bench.rounds import Rounds, Turn, quartiles, summary, turn
from lightning_modules.bench.steps import OWN, Problem, available
from lightning_modules.bench.table import Bench, Row, endless
from lightning_modules.console import say
from lightning_modules.run import life
from lightning_modules.run.identity import identity_of
from lightning_modules.run.settings import Settings
from lightning_modules.run.signals import Signals
from lightning_modules.run.step_overhead import RunCallback
from lightning_modules.training_step import TrainingStep, module_for
from releg.architecture import architecture_name

LAYERS = (200, 200)
WARM_UP = 30  # steps before the clock starts, in both loops
CRN = ("--config", "estimator/common_random_numbers.yaml")
FIT_ARGUMENTS = {  # what `releg fit` is told for each estimator
    "lr": ["--config", "estimator/likelihood_ratio.yaml"],
    **{f"crn_{engine}": [*CRN, "--model.estimator.init_args.engine", engine] for engine in ("cpu", "triton")},
}


class Stopwatch(RunCallback):
    """Steps per second from the end of step `first` to the end of step `last`."""

    def __init__(self, first: int, last: int, device: str = "cpu") -> None:
        self.device = device
        self.first = first
        self.last = last
        self._started = 0.0
        self.rate = 0.0

    def on_train_batch_end(self, trainer: pl.Trainer, *args: Any) -> None:
        """Start or stop the watch."""
        self.tick(trainer.global_step)

    def tick(self, step: int) -> None:
        """Record that a step has ended."""
        if step == self.first:
            self._started = now(self.device)
        elif step == self.last:
            self.rate = (self.last - self.first) / (now(self.device) - self._started)


def trainer_rate(name: str, bench: Bench, problem: Problem, steps: int) -> float:
    """Steps per second through the Trainer, validation off, from the problem's weights."""
    watch = Stopwatch(WARM_UP, WARM_UP + steps, bench.device)
    with tempfile.TemporaryDirectory(prefix="releg-bench-") as folder, silence():
        arguments = [
            *("--config", "base.yaml", *FIT_ARGUMENTS[name]),
            *("--model.layers", str(list(problem.layers)), "--seed_everything", str(bench.seed)),
            *("--results_dir", folder),
            *("--trainer.max_steps", str(watch.last), "--trainer.limit_val_batches", "0"),
            *("--trainer.accelerator", bench.device),
        ]
        if name == "crn_cpu":
            arguments += ["--model.estimator.init_args.threads", str(bench.threads)]
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
    return watch.rate


def bare_rate(name: str, bench: Bench, problem: Problem, steps: int) -> float:
    """Steps per second of a loop that only fetches batches and takes steps."""
    module = module_for(problem.layers, OWN[name](bench.threads), problem.weights, bench.seed, bench.device)
    step = TrainingStep(module, bench.seed)
    watch = Stopwatch(WARM_UP, WARM_UP + steps, bench.device)
    batches: Iterator[Tensor] = endless(bench.data)
    for number in range(1, watch.last + 1):
        step(next(batches).to(bench.device))
        watch.tick(number)
    return watch.rate


def measure_overhead(bench: Bench, steps: int, repetitions: int) -> list[Row]:
    """One row per estimator. Bare loop and Trainer alternate, and so does which of them goes first."""
    rows: list[Row] = []
    problem = bench.problem(LAYERS)
    for name in available(tuple(FIT_ARGUMENTS), bench.device):
        say(f"overhead of the Trainer: {name}, {repetitions} times {steps} steps each way")
        bare: list[float] = []
        trainer: list[float] = []
        for repetition in range(repetitions):
            ways = [(bare, bare_rate), (trainer, trainer_rate)]
            for rates, rate in ways if repetition % 2 == 0 else reversed(ways):
                rates.append(rate(name, bench, problem, steps))
        rows.append(
            {
                "architecture": architecture_name(LAYERS),
                "estimator": name,
                **overhead_columns(bare, trainer),
                "steps": steps,
            }
        )
    return rows


def through_trainer(bench: Bench, problem: Problem, steps: int, repetitions: int) -> dict[str, Row]:
    """The columns of each estimator's row in bench.json: its time through the Trainer, against LR's and its floor."""
    names = available(tuple(FIT_ARGUMENTS), bench.device)
    floors = make_floors(bench.data.data_size, problem.layers, len(bench.batches[0]), names, bench.device)
    rounds: Rounds = []
    for repetition in range(repetitions):
        order = names if repetition % 2 == 0 else names[::-1]
        turns = {name: Turn(1 / trainer_rate(name, bench, problem, steps), {}) for name in order}
        turns |= {name: turn(floor, bench.batches) for name, floor in floors.items()}
        rounds.append(turns)
    return {name: summary(rounds, name) for name in names}


def overhead_columns(bare: Sequence[float], trainer: Sequence[float]) -> Row:
    """Medians over repetitions; the loss is computed within each repetition."""
    lost = [1 - slow / fast for fast, slow in zip(bare, trainer, strict=True)]
    return {
        "bare_steps_per_second": round(statistics.median(bare), 2),
        "trainer_steps_per_second": round(statistics.median(trainer), 2),
        "lost": round(statistics.median(lost), 4),
        "lost_quartiles": quartiles(lost),
        "repetitions": len(lost),
    }


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
