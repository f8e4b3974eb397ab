"""Schedules that take the learning rate from its peak to zero at the end of training, after a warm-up if one is wanted.

The rate is a closed form of the number of finished steps, so a run that is continued has the rate it would have had.

Why a warm-up: RMSprop starts its average of squared gradients at zero, so its first steps are up to
1 / sqrt(1 - smoothing) times as long as later ones, ten times with a smoothing of 0.99. At a peak of 0.003 they
saturate most units of a middle layer within a hundred steps, and few of these come back.
"""

from __future__ import annotations

import math

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from lightning_modules.command_line.console import say
from releg.checks import check_at_least


class DecayToZero(LRScheduler):
    """rate = peak * min(1, (finished steps + 1) / warmup steps) * shape(finished steps / total steps).

    Args:
        optimizer: whose learning rate is the peak.
        total_steps: after which the rate is zero; None means all of training, which the module sets with `end_with`.
        last_epoch: finished steps, -1 to begin.
        warmup_steps: during which the rate rises in a straight line; 0 for none.
    """

    def __init__(
        self, optimizer: Optimizer, total_steps: int | None = None, last_epoch: int = -1, warmup_steps: int = 0
    ) -> None:
        check_at_least("total_steps", 1 if total_steps is None else total_steps, 1, "leave it out for all of training")
        check_at_least("warmup_steps", warmup_steps, 0, "0 is no warm-up")
        self.total_steps: float | None = total_steps
        self.warmup_steps = warmup_steps
        super().__init__(optimizer, last_epoch)

    def end_with(self, steps: float) -> None:
        """Reach zero after this many steps, unless the user chose another number."""
        if self.total_steps is None:
            self.total_steps = steps
        if self.warmup_steps >= self.total_steps:
            say(
                f"the warm-up takes {self.warmup_steps} steps and training {self.total_steps}, so the learning rate "
                "never comes near its peak; set --model.lr_scheduler.init_args.warmup_steps"
            )

    def shape(self, done: float) -> float:
        """The factor on the peak rate after this fraction of training, from 0 to 1."""
        raise NotImplementedError

    def get_lr(self) -> list[float | Tensor]:
        """The rate of each group."""
        done = 0.0 if self.last_epoch == 0 or self.total_steps is None else self.last_epoch / self.total_steps
        warmth = min(1.0, (self.last_epoch + 1) / self.warmup_steps) if self.warmup_steps else 1.0
        factor = warmth * self.shape(min(1.0, done))
        return [base * factor for base in self.base_lrs]


class LinearDecay(DecayToZero):
    """rate = peak * (1 - done)."""

    def shape(self, done: float) -> float:
        """The part of training that is left."""
        return 1.0 - done


class CosineDecay(DecayToZero):
    """rate = peak * (1 + cos(pi done)) / 2."""

    def shape(self, done: float) -> float:
        """Half a cosine wave, from 1 to 0."""
        return (1.0 + math.cos(math.pi * done)) / 2.0


class HoldThenLinearDecay(DecayToZero):
    """rate = peak in the first half of training, then a straight line to zero."""

    def shape(self, done: float) -> float:
        """1 in the first half of training, then a straight line to 0."""
        return min(1.0, 2.0 * (1.0 - done))
