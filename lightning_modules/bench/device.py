"""The CPU or a GPU: a clock and a memory meter for what runs there."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

DEVICES = ("cpu", "cuda")
METHOD_ON_CUDA = (
    "torch's own count of the GPU's memory at its peak in the first steps, over what it held with weights and one "
    "batch in place. The CUDA context is not in it"
)


def check(device: str) -> None:
    """Raise ValueError unless the device is there."""
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device is cuda, but torch finds no GPU here, expected one; leave --device out for the CPU")


def name_of(device: str) -> str | None:
    """The GPU's name; None on the CPU, whose name is in the provenance."""
    return torch.cuda.get_device_name() if device == "cuda" else None


def now(device: str) -> float:
    """Seconds on a clock, read after the device has finished its work."""
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def mib_at_peak(steps: Callable[[], None]) -> float:
    """MiB that steps take on the GPU on top of what was allocated before them."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    steps()
    torch.cuda.synchronize()
    return round((torch.cuda.max_memory_allocated() - before) / 2**20, 1)
