"""RMSprop in one pass over each parameter, where torch takes seven."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from releg.kernels import has_numba


class RMSprop(torch.optim.RMSprop):
    """torch.optim.RMSprop with the same arguments, the same state_dict and the same numbers, bit for bit.

    The one pass is taken for dense float32 parameters on the CPU without momentum and centring, with as many threads as
    torch uses. For anything else, and without numba, the step is torch's own.
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update all parameters that have a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if has_numba() and all(_is_plain(group) for group in self.param_groups):
            self._step_in_one_pass()
        else:
            _torch_step()(self)
        return loss

    def _step_in_one_pass(self) -> None:
        rows: list[list[int]] = []
        updated: list[Tensor] = []
        steps: list[Tensor] = []
        settings = [_settings(group) for group in self.param_groups]  # alive until the pass is over
        for group, numbers in zip(self.param_groups, settings, strict=True):
            for parameter in group["params"]:
                if parameter.grad is not None:
                    state = self._state_of(parameter)
                    arrays = (parameter, parameter.grad, state["square_avg"])
                    rows.append([*(a.data_ptr() for a in arrays), numbers.ctypes.data, parameter.numel()])
                    updated.append(parameter)
                    steps.append(state["step"])
        if rows:
            _update(rows)
            torch._foreach_add_(steps, 1)
            torch.autograd.graph.increment_version(updated)

    def _state_of(self, parameter: Tensor) -> dict[str, Tensor]:
        """As torch makes it."""
        state = cast("dict[str, Tensor]", self.state[parameter])
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32)
            state["square_avg"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        return state


def in_one_pass(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """The optimiser, its steps in one pass if it is torch's RMSprop; to be called before its first step."""
    if type(optimizer) is not torch.optim.RMSprop:
        return optimizer
    return RMSprop(optimizer.param_groups, **optimizer.defaults)


def _is_plain(group: dict[str, Any]) -> bool:
    """Whether one pass can do all that the group's settings and tensors ask for."""
    options = ("momentum", "centered", "maximize", "capturable", "differentiable", "foreach")
    if any(group[option] for option in options) or isinstance(group["lr"], Tensor):
        return False
    return all(_is_dense(p) and _is_dense(p.grad) for p in group["params"] if p.grad is not None)


def _is_dense(tensor: Tensor) -> bool:
    return (
        tensor.dtype == torch.float32
        and tensor.device.type == "cpu"
        and tensor.layout == torch.strided
        and tensor.is_contiguous()
    )


def _settings(group: dict[str, Any]) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Weight decay, smoothing, 1 - smoothing, epsilon and -learning rate, each rounded once, as torch does."""
    decay, smoothing, epsilon, rate = (group[name] for name in ("weight_decay", "alpha", "eps", "lr"))
    return np.array([decay, smoothing, 1 - smoothing, epsilon, -rate], dtype=np.float32)


def _update(rows: Sequence[list[int]]) -> None:
    """One pass over addresses of parameter, gradient, mean of squares and settings, and count, of each parameter."""
    from releg.kernels import elementwise  # numba is imported here, so that everything else works without it

    table = [0, len(rows), elementwise.mkl_root()]
    pieces = 0
    for row in rows:
        pieces += -(-row[4] // elementwise.PIECE)
        table += [*row, pieces]
    elementwise.run(elementwise.update_rmsprop, table, pieces)


def _torch_step() -> Callable[[torch.optim.RMSprop], Any]:
    """torch's own step, without the hooks that torch puts around every optimiser's: ours has them already."""
    step: Any = torch.optim.RMSprop.step
    return step.__wrapped__ if getattr(step, "hooked", False) else step
