"""Peak memory of a training step, measured in a fresh process."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lightning_modules.bench.steps import Problem, make_step
from releg.sbn import SigmoidBeliefNet

LINUX = sys.platform == "linux"
METHOD = (
    "growth of a fresh process's resident memory in its first steps, over what it held with weights and one batch in "
    "place: gradients, optimiser state, activations, the engine's own store, and what the allocator loses between them "
    "(which makes it vary by some 20%). Libraries are warmed up on a tiny net before. "
) + (
    "Linux's high-water mark (VmHWM), reset just before the first step"
    if LINUX
    else "From the process's maximum (ru_maxrss), which cannot be reset here, so that it may come out too low"
)


@dataclass(frozen=True)
class Request:
    """What to measure, as plain arrays that any process can read."""

    name: str
    layers: tuple[int, ...]
    weights: dict[str, npt.NDArray[np.float32]]
    x: npt.NDArray[np.float32]  # (B, data_size)
    threads: int
    seed: int


def request_for(name: str, problem: Problem, x: Tensor) -> Request:
    """The request to measure that estimator's steps on x."""
    weights = {key: value.numpy() for key, value in problem.weights.items()}
    return Request(name, problem.layers, weights, x.numpy(), torch.get_num_threads(), problem.seed)


def measure(request: Request) -> float | None:
    """Peak MiB of a step; call it in a fresh process. None if it cannot be measured here."""
    torch.set_num_threads(request.threads)
    x = torch.from_numpy(request.x.copy())
    tiny = (2,) * len(request.layers)
    make_step(request.name, Problem(tiny, SigmoidBeliefNet(x.shape[1], tiny).state_dict(), 0))(x)
    weights = {key: torch.from_numpy(value.copy()) for key, value in request.weights.items()}
    step = make_step(request.name, Problem(request.layers, weights, request.seed))
    gc.collect()
    peak = watch_peak()
    step(x[:1])  # leaves gradients and optimiser state, which the next step needs as well
    step(x)
    grown = peak()
    return None if grown is None else round(grown / 2**20, 1)


def watch_peak() -> Callable[[], int | None]:
    """Start watching memory. Call the returned function to get the growth in bytes up to the peak since then."""
    if LINUX:
        try:
            ctypes.CDLL(None).malloc_trim(0)  # so that memory that is already free does not hide what the step takes
        except AttributeError:  # musl, which keeps little
            gc.collect()
        Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM
        before = _status("VmRSS")
        return lambda: _status("VmHWM") - before
    try:
        import resource
    except ImportError:  # Windows
        return lambda: None
    unit = 1 if sys.platform == "darwin" else 1024
    start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return lambda: (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start) * unit


def _status(field: str) -> int:
    """A size from /proc/self/status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))
