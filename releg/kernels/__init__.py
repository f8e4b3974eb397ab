"""Engines that compute f1 - f0 of every unit with common random numbers. All give the same numbers.

dense: the readable reference; batched: torch, any device; cpu: numba, the fast one on a CPU; triton: the fast one on
CUDA; auto: the best one available.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from typing import Literal, get_args

import torch
from torch import Tensor

from releg.compiled import has_numba
from releg.kernels.batched import BatchedEngine
from releg.kernels.dense import flip_differences
from releg.sbn import SigmoidBeliefNet, Trajectory

EngineName = Literal["auto", "cpu", "triton", "batched", "dense"]
Engine = Callable[[SigmoidBeliefNet, Trajectory, Sequence[Tensor], bool], list[Tensor]]

logger = logging.getLogger("releg")


def engine_for(name: EngineName, memory_mib: float, threads: int | None) -> Engine:
    """The engine of that name; memory_mib limits the batched engine, threads the cpu engine."""
    if name == "auto":
        cpu = cpu_engine(threads) if has_numba() else None
        return AutoEngine(BatchedEngine(memory_mib, compiled=cpu is None), cpu)
    if name == "cpu":
        return cpu_engine(threads)
    if name == "triton":
        return triton_engine()
    if name == "batched":
        return BatchedEngine(memory_mib)
    if name == "dense":
        return flip_differences
    raise ValueError(f"engine is {name!r}, expected one of {', '.join(get_args(EngineName))}; auto fits every device")


@dataclass
class AutoEngine:
    """The cpu kernel for CPU tensors, the triton kernels for CUDA tensors; the batched engine for everything else."""

    batched: BatchedEngine
    cpu: Engine | None = field(default=None)

    def __call__(
        self, model: SigmoidBeliefNet, path: Trajectory, generative_logits: Sequence[Tensor], entropy: bool = False
    ) -> list[Tensor]:
        """f1 - f0 of every unit, (N, H) per layer."""
        return self.choose(path.x)(model, path, generative_logits, entropy)

    def choose(self, x: Tensor) -> Engine:
        """The engine for tensors like x."""
        if x.dtype not in (torch.float32, torch.float64):
            _log_once(f"common random numbers: batched engine, since tensors are {x.dtype}")
        elif x.device.type == "cuda" and has_triton():
            _log_once("common random numbers: triton engine")
            return triton_engine()
        elif x.device.type == "cuda":
            _log_once("common random numbers: batched engine, since triton is not installed (slower)")
        elif x.device.type != "cpu":
            _log_once(f"common random numbers: batched engine, since tensors are on {x.device.type}")
        elif self.cpu is None:
            _log_once("common random numbers: batched engine, since numba is not installed (slow on a CPU)")
        else:
            _log_once("common random numbers: cpu engine")
            return self.cpu
        return self.batched


def cpu_engine(threads: int | None) -> Engine:
    """The cpu engine; numba is imported here, so that everything else works without it."""
    if not has_numba():
        raise ImportError(
            "engine 'cpu' needs numba, which is not installed; pip install numba, or choose engine='batched'"
        )
    from releg.kernels.cpu import CpuEngine

    return CpuEngine(threads)


def has_triton() -> bool:
    """Whether the triton engine can be used; on Linux, triton comes with torch."""
    return find_spec("triton") is not None


def triton_engine() -> Engine:
    """The triton engine; triton is imported here, so that everything else works without it."""
    if not has_triton():
        raise ImportError(
            "engine 'triton' needs triton, which is not installed; pip install triton, or choose engine='batched'"
        )
    from releg.kernels.triton import TritonEngine

    return TritonEngine()


@cache
def _log_once(message: str) -> None:
    logger.info(message)
