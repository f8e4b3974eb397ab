"""Engines that compute f1 - f0 of every unit with common random numbers. All give the same numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

import torch
from torch import Tensor

from releg.kernels import batched, cpu, dense
from releg.sbn import SigmoidBeliefNet, Trajectory

# The nets, the path and the logits of p(x | z[0]), ..., p(z[-1]) to f1 - f0 of every unit, (N, H) per layer
Differences = Callable[[SigmoidBeliefNet, Trajectory, Sequence[Tensor]], list[Tensor]]

HAS_TRITON = find_spec("triton") is not None  # on Linux it comes with torch


@dataclass(frozen=True)
class Engine:
    """One way to compute f1 - f0 of every unit."""

    name: str
    label: str
    differences: Differences
    runs_on: Callable[[Tensor], bool]  # whether it can compute on tensors like x


def _is_exact_on(device: str, x: Tensor) -> bool:
    return x.device.type == device and x.dtype in (torch.float32, torch.float64)


def _triton(model: SigmoidBeliefNet, path: Trajectory, generative_logits: Sequence[Tensor]) -> list[Tensor]:
    from releg.kernels import triton  # it needs triton

    return triton.flip_differences(model, path, generative_logits)


# `auto` takes the first one that runs on the tensors
ENGINES = {
    engine.name: engine
    for engine in (
        Engine("cpu", "numba on a CPU", cpu.flip_differences, lambda x: _is_exact_on("cpu", x)),
        Engine("triton", "triton on CUDA", _triton, lambda x: HAS_TRITON and _is_exact_on("cuda", x)),
        Engine("batched", "torch, all flips of a layer at once", batched.flip_differences, lambda x: True),
        Engine("dense", "torch, every flip simulated in full", dense.flip_differences, lambda x: True),
    )
}


def flip_differences(
    engine: str, model: SigmoidBeliefNet, path: Trajectory, generative_logits: Sequence[Tensor]
) -> list[Tensor]:
    """f1 - f0 of every unit, (N, H) per layer, from the engine of that name, or from the fastest one there is.

    Args:
        engine: its name, or auto.
        model: the nets.
        path: N paths through the inference net.
        generative_logits: (N, H) of p(x | z[0]), ..., p(z[-1]), along them.
    """
    wanted = ENGINES.values() if engine == "auto" else [ENGINES[engine]]
    chosen = next((known for known in wanted if known.runs_on(path.x)), None)
    if chosen is None:
        raise ValueError(
            f"x is {path.x.dtype} on {path.x.device}, which engine {engine!r} cannot compute on, expected float32 or "
            f"float64 for {ENGINES[engine].label}; use engine='auto'"
        )
    return chosen.differences(model, path, generative_logits)


def check_engine(engine: str) -> None:
    """Raise ValueError unless there is an engine of that name."""
    if engine not in (*ENGINES, "auto"):
        raise ValueError(f"engine is {engine!r}, expected one of auto, {', '.join(ENGINES)}; auto fits every device")
