"""The CPU engine: common random numbers at about the cost of a likelihood-ratio step.

The paper gives the cost as one simulation per unit. For sigmoid layers most of that is not needed. Take layer l,
one row of the batch, and unit i. Let s = +1 if the unit is 0 and s = -1 if it is 1, so that a flip changes it by s. One
of the two clamped simulations of Algorithm 1 is the sample itself; only the flipped one is new.

**Direct term.** The flip adds d_j = s W_ij to the logit r_j of every target j in p(z[l-1] | z[l]). Hence

    change of log p(z[l-1] | z[l]) = s (z[l-1] @ W)_i - sum_j [softplus(r_j + d_j) - softplus(r_j)]

    softplus(r + d) - softplus(r) = log(sigmoid(-r) + sigmoid(r) exp(d))
                                  = d / 2 + log cosh(w / 2) + log(1 + s c T),    c = tanh(r / 2), T = tanh(w / 2)

The sums of w / 2 and of log cosh(w / 2) depend on the weights alone. The rest is a matrix product in which the log of a
product replaces the sum: one fused multiply-add and one multiplication per factor 1 + s c T, no exponential. A
product is cut where sum |w| could take it out of range; its exponent is set aside, and one logarithm is taken at the
end. A weight beyond STEEP makes 1 - |c T| inexact; it uses the first form, sigmoid(-r) + sigmoid(r) exp(d).

**Who changes below.** Unit k of the next layer is on if its noise u_k < sigmoid(a_k), that is logit(u_k) < a_k. Its
margin is |logit(u_k) - a_k|. The flip adds s V_ki to a_k, so unit k changes if s_k s V_ki exceeds its margin. One
comparison per pair (i, k) decides; only units whose margin is below their largest weight need it. Usually none to a
few change, since the noise is common. The change of log q(z[l+1] | z[l]) is the direct term's formula again, plus a
term per changed unit.

**Only the changed set matters further down.** What happens below depends on the set C of changed units, not on i. If C
is empty, nothing more changes. If C = {k}, it is what flipping k itself does, which is computed anyway. Larger sets
recur: each is scored once. Flipping C, everything above it left as it is, changes f by G_l(C), less the change of log
q(z[l] | z[l-1]). With d = sum over C of s * weights,

    G_l(C) = sum s (z[l-1] @ W + r)   - sum_j log(sigmoid(-r_j) + sigmoid(r_j) exp(d_j))        log p, r its logits
           - sum s (z[l+1] @ V)       + sum_k log(sigmoid(-a_k) + sigmoid(a_k) exp(d_k))        -log q(z[l+1] | z[l])
           + sum over changed k of s_k (sum over C of s (W_ik - V_ki) - a_k) + G_(l+1)(changed k)

With entropies in place of -log q, the second line is their change, and the third has neither V nor a. exp(d) is the
product of the members' exp(s w). Unit k changes with C if s_k d_k exceeds its margin, that is if the exp(d_k) of the
second line lies beyond exp(s_k margin): the products tell, and no logit is added up for it.

The result is exact: it equals the dense simulation up to rounding. layout says where everything is in memory; tables
holds what depends on the weights or on one row alone; terms has the direct terms; walk follows the sets down and adds
up on the way back; loops and vector are the arithmetic below them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from numba.core import event
from torch import Tensor

from releg.compiled.threads import run_team
from releg.kernels.cpu.entry import entry_for
from releg.kernels.cpu.layout import Shape, Workspace
from releg.sbn import SigmoidBeliefNet, Trajectory

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
        return {"threads": self.threads, "_free": []}  # the workspace is not state: copies get their own

    @torch.no_grad()
    def __call__(
        self, model: SigmoidBeliefNet, path: Trajectory, generative_logits: Sequence[Tensor], entropy: bool = False
    ) -> list[Tensor]:
        """f1 - f0 of every unit, (N, H) per layer."""
        check_tensor(path.x)
        weights_of = [linear.weight for linear in (*model.generative, *model.inference)]
        check_same_type(path.x, [*path.z, *path.logits, *path.noise, *generative_logits, *weights_of])
        rows = len(path.x)
        workspace = self._take_workspace(model, path.x.dtype, min(rows, ROWS_AT_ONCE))
        weights = workspace.set_weights(model)
        run(workspace, 0, path.x, 0, entropy)
        parts = []
        for start in range(0, rows, ROWS_AT_ONCE):
            count = min(ROWS_AT_ONCE, rows - start)
            kept = workspace.set_rows(path, generative_logits, slice(start, start + count))
            flat = path.x.new_empty(count * sum(model.layers))
            run(workspace, 1, flat, count, entropy)
            del kept  # the kernel has read them
            pieces = flat.split([count * size for size in model.layers])
            parts.append([piece.view(count, size) for piece, size in zip(pieces, model.layers, strict=True)])
        del weights
        self._free = [workspace]
        return parts[0] if len(parts) == 1 else [torch.cat(layer) for layer in zip(*parts, strict=True)]

    def _take_workspace(self, model: SigmoidBeliefNet, dtype: torch.dtype, rows: int) -> Workspace:
        """The last call's workspace if it fits and no other thread is using it, else a new one."""
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


def check_same_type(x: Tensor, others: Iterable[Tensor]) -> None:
    """Raise ValueError unless all tensors are like x: the kernel reads their memory as numbers of that type."""
    for tensor in others:
        if tensor.dtype != x.dtype or tensor.device != x.device:
            raise ValueError(
                f"the CPU kernel got {tensor.dtype} on {tensor.device}, expected {x.dtype} on {x.device} like x; "
                "call the estimator outside torch.autocast, with model and noise of one type"
            )


def run(workspace: Workspace, phase: int, out: Tensor, rows: int, entropy: bool) -> None:
    """Run one phase of the kernel, shared among the workers."""
    argument = workspace.prepare_call(phase, out, rows, entropy)
    run_team(announced_entry(workspace.number.name), argument, workspace.shape.workers)


@cache
def announced_entry(dtype: str) -> int:
    """entry_for, with a log message if it has to compile."""
    with event.install_listener("numba:compile", Announcement(dtype)):
        return entry_for(dtype)


class Announcement(event.Listener):
    """Logs that the kernel is being compiled: numba is silent, and the first step would seem to hang."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype

    def on_start(self, event: Any) -> None:
        """Log one line when the first of the kernel's functions is compiled."""
        if self.dtype:
            logger.info("compiling the CPU kernels for %s (once per machine, about 20 s)", self.dtype)
            self.dtype = ""

    def on_end(self, event: Any) -> None:
        """Nothing to say."""
