"""Steps in turns with those of a Trainer, which cannot take a turn by itself: it is interrupted after each block."""

from __future__ import annotations

import logging
import random
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import pytorch_lightning as pl

from lightning_modules.bench.rounds import Contestant, now, play_round
from lightning_modules.bench.steps import COMPILED, CONFIGS, Name, Problem, contestants, ways_here
from lightning_modules.cli import RelegCLI

TRAINER = "trainer"
WARM_UP = 30  # steps before the first block
BLOCK = 100  # steps; the Trainer logs at one of them


class RoundsInTrainer(pl.Callback):
    """After each block of the Trainer's steps, lets the others have a turn; keeps the rounds.

    Each block starts from the problem's weights, and its first step, which is not timed, warms the caches.

    Args:
        name: of the Trainer's estimator.
        problem: what all steps share.
        others: have a turn after each block.
        steps: of each of the others, per turn.
        count: of rounds.
    """

    def __init__(self, name: str, problem: Problem, others: Mapping[Name, Contestant], steps: int, count: int) -> None:
        self.rounds: list[dict[Name, float]] = []
        self.last = WARM_UP + count * (BLOCK + 1)  # the step after which everything is timed
        self._name, self._others, self._steps = (name, TRAINER), others, steps
        self._problem, self._order = problem, random.Random(problem.seed)
        self._started = 0.0

    def on_train_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Put the weights in place."""
        pl_module.model.load_state_dict(self._problem.weights)

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: Any, *_: Any) -> None:
        """Look at the clock."""
        place = (trainer.global_step - WARM_UP) % (BLOCK + 1)
        device = pl_module.device.type
        if trainer.global_step > WARM_UP and place == 0:
            seconds = (now(device) - self._started) / BLOCK
            self.rounds.append({self._name: seconds, **play_round(self._others, self._steps, self._order, device)})
        if place == 0:
            pl_module.model.load_state_dict(self._problem.weights)
        if place == 1:
            self._started = now(device)


def rounds_with_trainer(
    name: str, problem: Problem, others: Sequence[Name], steps: int, count: int
) -> list[dict[Name, float]]:
    """Rounds of `releg fit` with that estimator from the problem's weights, validation off, and of the others."""
    callback = RoundsInTrainer(name, problem, contestants(problem, others), steps, count)
    with tempfile.TemporaryDirectory(prefix="releg-bench-") as folder:
        arguments = [
            *("--config", "base.yaml", "--config", f"estimator/{CONFIGS[name]}.yaml", "--results_dir", folder),
            *("--model.layers", str(list(problem.layers)), "--seed_everything", str(problem.seed)),
            *("--model.compile", str(COMPILED in ways_here(problem.device)).lower()),
            *("--trainer.max_steps", str(callback.last), "--trainer.enable_progress_bar", "false"),
            *("--trainer.limit_val_batches", "0", "--trainer.limit_test_batches", "1"),
            *("--trainer.accelerator", problem.device),
        ]
        logging.disable(logging.INFO)  # what a run tells
        try:
            RelegCLI("fit", arguments, callbacks=[callback])
        finally:
            logging.disable(logging.NOTSET)
    return callback.rounds
