"""Engines that compute f1 - f0 of every unit with common random numbers. All answer the same numbers.

dense: the readable reference; batched: torch, any device.
"""

from collections.abc import Callable, Sequence
from typing import Literal

from torch import Tensor

from releg.kernels.batched import BatchedEngine
from releg.kernels.dense import flip_differences
from releg.sbn import Path, SigmoidBeliefNet

EngineName = Literal["batched", "dense"]
Engine = Callable[[SigmoidBeliefNet, Path, Sequence[Tensor], bool], list[Tensor]]


def engine_for(name: EngineName, memory_mib: float) -> Engine:
    """The engine of that name."""
    engines: dict[str, Engine] = {"batched": BatchedEngine(memory_mib), "dense": flip_differences}
    if name not in engines:
        raise ValueError(f"engine is {name!r}, expected one of {', '.join(engines)}; choose batched for any device")
    return engines[name]
