"""Times blocks of consecutive steps, in a bare loop or in the Trainer, with the floors timed between them.

A Trainer cannot take turns with another step, as a bare step does in `rounds.py`. So the floors come to it: after each
block of steps they have a turn, and a slow second of the machine affects both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytorch_lightning as pl
from torch import Tensor
from torch.optim import Optimizer

from lightning_modules.bench.device import now
from lightning_modules.bench.floor import Floor
from lightning_modules.bench.rounds import Rounds, Turn, turn
from lightning_modules.run.step_overhead import RunCallback

WARM_UP = 30  # steps before the first block
BLOCK = 100  # steps; the Trainer logs at one of them


class Stopwatch(RunCallback):
    """Collects one round per block: the mean time of its steps, and the floors' times right after it.

    The learning rate is zero meanwhile, so that all steps are taken at the weights that were asked for.

    Args:
        name: of the estimator whose steps are timed.
        floors: by name.
        batches: on which the floors are timed.
        steps: to be timed, in whole blocks; fewer than a block make a shorter one.
    """

    def __init__(self, name: str, floors: Mapping[str, Floor], batches: Sequence[Tensor], steps: int) -> None:
        self.rounds: Rounds = []
        self._name = name
        self._floors = floors
        self._batches = batches
        self._device = batches[0].device.type
        self._block = min(BLOCK, steps)
        self._started_at = WARM_UP
        self._started = 0.0
        self.last = WARM_UP + steps // self._block * (self._block + 1)  # the step after which everything is timed

    def on_train_start(self, trainer: pl.Trainer, *args: Any) -> None:
        """Keep the weights in place."""
        self.freeze(trainer.optimizers)

    def on_train_batch_end(self, trainer: pl.Trainer, *args: Any) -> None:
        """Look at the clock."""
        self.tick(trainer.global_step)

    @staticmethod
    def freeze(optimizers: Iterable[Optimizer]) -> None:
        """Set all learning rates to zero: steps cost the same and change nothing."""
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = 0.0

    def tick(self, step: int) -> None:
        """Record that a step has ended. The first one after a turn of the floors only warms the caches."""
        if step == self._started_at:
            self._started = now(self._device)
        elif step == self._started_at + self._block:
            seconds = (now(self._device) - self._started) / self._block
            floors = {name: turn(floor, self._batches) for name, floor in self._floors.items()}
            self.rounds.append({self._name: Turn(seconds, {}), **floors})
            self._started_at = step + 1
