"""Timing in rounds: every estimator takes a turn in each round, so a slow minute of the machine affects them all."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from torch import Tensor

from lightning_modules.bench.device import now
from lightning_modules.bench.floor import floor_of

REFERENCE = "lr"
SLOW_SECONDS = 0.25  # a step that takes longer is timed alone, in few rounds


@dataclass(frozen=True)
class Schedule:
    """How much to measure."""

    rounds: int
    steps: int  # timed per turn; one more before them is discarded
    slow_rounds: int  # rounds in which slow estimators take part, with one step each


@dataclass(frozen=True)
class Turn:
    """One estimator's part of a round."""

    seconds: float  # median of its steps
    parts: Mapping[str, float]  # of that, medians by what they were spent on


Rounds = list[dict[str, Turn]]


class Step(Protocol):
    """What can be timed: a training step, or its floor."""

    parts: dict[str, float]  # seconds of the last step, by what they were spent on

    def restore(self) -> None:
        """Go back to the weights at which the step was made."""

    def __call__(self, x: Tensor) -> None:
        """Take a step on x (B, data_size)."""


def interleave(steps: Mapping[str, Step], batches: Sequence[Tensor], schedule: Schedule, seed: int) -> Rounds:
    """Run the rounds. All estimators see the same batches from the same weights; their order changes each round."""
    slow = {name for name, step in steps.items() if warm_up(step, batches[0]) and name != REFERENCE}
    slow_rounds = {index * schedule.rounds // schedule.slow_rounds for index in range(schedule.slow_rounds)}
    order = random.Random(seed)
    rounds: Rounds = []
    for number in range(schedule.rounds):
        names = [name for name in steps if name not in slow or number in slow_rounds]
        order.shuffle(names)
        first = number * (schedule.steps + 1)
        mine = [batches[(first + k) % len(batches)] for k in range(schedule.steps + 1)]
        rounds.append({name: turn(steps[name], mine[:1] if name in slow else mine) for name in names})
    return rounds


def warm_up(step: Step, x: Tensor) -> bool:
    """Compile and allocate. Returns whether the step is slow, which is tried on part of the batch first."""
    step(x[:1])
    if seconds_of(step, x[: math.ceil(len(x) / 10)]) > SLOW_SECONDS / 2:
        return True
    return seconds_of(step, x) > SLOW_SECONDS


def turn(step: Step, batches: Sequence[Tensor]) -> Turn:
    """Time steps on these batches from the step's own weights; of several, the first only warms the caches."""
    step.restore()
    times, parts = [], []
    for x in batches:
        times.append(seconds_of(step, x))
        parts.append(step.parts)
    kept = slice(1 if len(times) > 1 else 0, None)
    medians = {name: statistics.median(each[name] for each in parts[kept]) for name in parts[0]}
    return Turn(statistics.median(times[kept]), medians)


def seconds_of(step: Step, x: Tensor) -> float:
    """Wall-clock seconds of one step."""
    start = now(x.device.type)
    step(x)
    return now(x.device.type) - start


def summary(rounds: Rounds, name: str) -> dict[str, object]:
    """An estimator's columns: medians over its rounds, with quartiles, of its time and of its ratio to LR's."""
    taken = [each for each in rounds if name in each]
    times = [1000 * each[name].seconds for each in taken]
    ratios = [each[name].seconds / each[REFERENCE].seconds for each in taken]
    parts = {
        part: round(1000 * statistics.median(each[name].parts[part] for each in taken), 3)
        for part in taken[0][name].parts
    }
    return {
        "ms_per_step": round(statistics.median(times), 3),
        "ms_quartiles": quartiles(times),
        "ratio_to_lr": round(statistics.median(ratios), 3),
        "ratio_quartiles": quartiles(ratios),
        "rounds": len(taken),
        "ms_parts": parts,
        **_floor_columns(taken, name),
    }


def _floor_columns(taken: Rounds, name: str) -> dict[str, object]:
    """The floor's time in the same rounds, and the estimator's time as a multiple of it."""
    floor = floor_of(name)
    common = [each for each in taken if floor in each]  # a floor, too, can be slow: of a large net, on a busy machine
    if not common:
        return {}
    return {
        "ratio_to_floor": round(statistics.median(each[name].seconds / each[floor].seconds for each in common), 3),
        "floor_ms": round(statistics.median(1000 * each[floor].seconds for each in common), 3),
    }


def quartiles(values: Sequence[float]) -> list[float]:
    """Lower and upper quartile."""
    return [round(float(value), 3) for value in np.percentile(values, (25, 75))]
