"""Timing in turns: everything that is timed takes a turn in each round, so a slow second of the machine affects all."""

from __future__ import annotations

import random
import time
from collections.abc import Hashable, Mapping, Sequence
from typing import Protocol, TypeVar

import numpy as np
import torch

SECONDS_PER_TURN = 0.5  # at most, unless a single step takes longer

Name = TypeVar("Name", bound=Hashable)


class Contestant(Protocol):
    """What can be timed: training steps in one way or another, or their floor."""

    def restore(self) -> None:
        """Go back to the weights that were given at the beginning."""

    def take(self, steps: int) -> int:
        """Take that many steps, or as many as it takes at once; returns their number."""


def now(device: str) -> float:
    """Seconds on a clock, read after the device has finished its work."""
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def turn(contestant: Contestant, steps: int, device: str) -> float:
    """Seconds per step, after one that warms the caches; fewer steps are taken if they are slow."""
    contestant.restore()
    start = now(device)
    contestant.take(1)
    fitting = SECONDS_PER_TURN / max(now(device) - start, 1e-9)
    start = now(device)
    taken = contestant.take(max(1, min(steps, int(fitting))))
    return (now(device) - start) / taken


def play_round(
    contestants: Mapping[Name, Contestant], steps: int, order: random.Random, device: str
) -> dict[Name, float]:
    """A turn of each, in random order: seconds per step by name."""
    names = list(contestants)
    order.shuffle(names)
    return {name: turn(contestants[name], steps, device) for name in names}


def milliseconds(rounds: Sequence[Mapping[Name, float]], name: Name) -> list[float]:
    """Median and quartiles over rounds of the time of a step."""
    return _quartiles([1000 * each[name] for each in rounds])


def ratio(rounds: Sequence[Mapping[Name, float]], name: Name, to: Name) -> list[float]:
    """Median and quartiles over rounds of how many times as long its step takes as the other's in the same round."""
    return _quartiles([each[name] / each[to] for each in rounds])


def _quartiles(values: Sequence[float]) -> list[float]:
    return [round(float(value), 4) for value in np.percentile(values, (50, 25, 75))]
