"""The CPU engine: common random numbers at about the price of a likelihood-ratio step.

workspace prepares what flips reads; here are the threads and what a user meets.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from numba.core import event
from torch import Tensor

from releg.kernels.cpu.entry import entry_for
from releg.kernels.cpu.threads import run_team
from releg.kernels.cpu.workspace import Shape, Workspace
from releg.sbn import Path, SigmoidBeliefNet

ROWS_AT_ONCE = 512  # bounds the store: about 20 KiB per row of SBN(200-200-200-200)

logger = logging.getLogger("releg")


@dataclass
class CpuEngine:
    """Computes f1 - f0 of every unit on the CPU, for float32 and float64.

    Args:
        threads: how many threads work on the rows; None: as many as torch uses at the time of the call
            (`torch.get_num_threads()`). The result does not depend on it.
    """

    threads: int | None = None
    _free: list[Workspace] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.threads is not None and self.threads < 1:
            raise ValueError(f"threads is {self.threads}, expected at least 1, or None for as many as torch uses")

    def __getstate__(self) -> dict[str, Any]:
        return {"threads": self.threads, "_free": []}  # the workspace is no state: copies get their own

    @torch.no_grad()
    def __call__(
        self, model: SigmoidBeliefNet, path: Path, generative_logits: Sequence[Tensor], entropy: bool = False
    ) -> list[Tensor]:
        """f1 - f0 of every unit, (N, H) per layer."""
        check_tensor(path.x)
        rows = len(path.x)
        workspace = self._take_workspace(model, path.x.dtype, min(rows, ROWS_AT_ONCE))
        weights = workspace.set_weights(model)
        run(workspace, 0, path.x, 0, entropy)
        parts = []
        for start in range(0, rows, ROWS_AT_ONCE):
            count = min(ROWS_AT_ONCE, rows - start)
            kept = workspace.set_rows(path, generative_logits, slice(start, start + count), weights)
            flat = torch.empty(count * sum(model.layers), dtype=path.x.dtype)
            run(workspace, 1, flat, count, entropy)
            del kept  # the kernel has read them
            pieces = flat.split([count * size for size in model.layers])
            parts.append([piece.view(count, size) for piece, size in zip(pieces, model.layers, strict=True)])
        self._free = [workspace]
        return parts[0] if len(parts) == 1 else [torch.cat(layer) for layer in zip(*parts, strict=True)]

    def _take_workspace(self, model: SigmoidBeliefNet, dtype: torch.dtype, rows: int) -> Workspace:
        """The one of the last call if it fits. While a call is under way it is taken: callers may be threads."""
        threads = min(self.threads or torch.get_num_threads(), rows)
        shape = Shape(model.data_size, tuple(model.layers), dtype, rows, max(1, threads))
        try:
            workspace = self._free.pop()
        except IndexError:
            return Workspace(shape)
        return workspace if workspace.shape == shape else Workspace(shape)


def check_tensor(x: Tensor) -> None:
    """Raise ValueError unless the kernel can work on tensors like x."""
    if x.device.type != "cpu" or x.dtype not in (torch.float32, torch.float64):
        raise ValueError(
            f"x is {x.dtype} on {x.device}, expected float32 or float64 on the CPU; use engine='batched' or 'auto'"
        )


def run(workspace: Workspace, phase: int, out: Tensor, rows: int, entropy: bool) -> None:
    """One phase of the kernel, shared out among the workers."""
    name = workspace.array.dtype.name
    with event.install_listener("numba:compile", Announcement(name)):
        entry = entry_for(name)
    run_team(entry, workspace.call(phase, out, rows, entropy), workspace.shape.workers)


class Announcement(event.Listener):
    """Says that the kernel is being compiled, if it is: numba is silent, and the first step would seem to hang."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype

    def on_start(self, event: Any) -> None:
        """Log one line when the first of the kernel's functions is compiled."""
        if self.dtype:
            logger.info("compiling the CPU kernels for %s (once per machine, about 20 s)", self.dtype)
            self.dtype = ""

    def on_end(self, event: Any) -> None:
        """Nothing to say."""
