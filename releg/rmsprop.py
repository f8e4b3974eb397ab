"""RMSprop in one pass over each parameter, where torch takes seven."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from releg.compiled import has_numba

# The learning rate is the paper's; smoothing and epsilon are those of the authors' later code
PAPER: dict[str, Any] = {"lr": 0.001, "alpha": 0.99, "eps": 1e-8}


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
        if not (has_numba() and self._step_in_one_pass()):
            _torch_step()(self)
        return loss

    def _step_in_one_pass(self) -> bool:
        """Take the step if one pass can do it; returns whether it could."""
        rows: list[list[int]] = []
        updated: list[Tensor] = []
        settings: list[array[float]] = []  # alive until the pass is over
        for group in self.param_groups:
            if not _is_plain(group):
                return False
            settings.append(_settings(group))
            address = settings[-1].buffer_info()[0]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self._state_of(parameter)
                arrays = (parameter, parameter.grad, state["square_avg"], state["step"])
                if not all(map(_is_dense, arrays)):
                    return False
                value, gradient, squares, step = (values.data_ptr() for values in arrays)
                rows.append([value, gradient, squares, address, step, parameter.numel()])
                updated.append(parameter)
        if rows:
            _update(rows)
            torch.autograd.graph.increment_version(updated)
        return True

    def _state_of(self, parameter: Tensor) -> dict[str, Tensor]:
        """The state of a parameter, created as torch creates it."""
        state = cast("dict[str, Tensor]", self.state[parameter])
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32)
            state["square_avg"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        return state


def paper_rmsprop(params: ParamsT) -> torch.optim.Optimizer:
    """torch's RMSprop with the paper's settings."""
    return torch.optim.RMSprop(params, **PAPER)


def in_one_pass(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """The optimiser, its steps in one pass if it is torch's RMSprop; to be called before its first step."""
    if type(optimizer) is not torch.optim.RMSprop:
        return optimizer
    return RMSprop(optimizer.param_groups, **optimizer.defaults)


def _is_plain(group: dict[str, Any]) -> bool:
    """Whether one pass can do all that the group's settings ask for."""
    options = ("momentum", "centered", "maximize", "capturable", "differentiable", "foreach")
    return not any(group[option] for option in options) and not isinstance(group["lr"], Tensor)


def _is_dense(tensor: Tensor) -> bool:
    return tensor.dtype is torch.float32 and tensor.is_cpu and tensor.layout is torch.strided and tensor.is_contiguous()


def _settings(group: dict[str, Any]) -> array[float]:
    """Weight decay, smoothing, 1 - smoothing, epsilon and -learning rate, each rounded once, as torch does."""
    decay, smoothing, epsilon, rate = (group[name] for name in ("weight_decay", "alpha", "eps", "lr"))
    return array("f", [decay, smoothing, 1 - smoothing, epsilon, -rate])


def _update(rows: Sequence[list[int]]) -> None:
    """One pass over the parameters, each given by the first columns of the table of elementwise.update_rmsprop."""
    from releg.compiled import elementwise  # numba is imported here, so that everything else works without it

    table = [0, len(rows), elementwise.mkl_root()]
    pieces = 0
    for row in rows:
        pieces += -(-row[-1] // elementwise.PIECE)
        table += [*row, pieces]
    elementwise.run(elementwise.update_rmsprop, table, pieces)


def _torch_step() -> Callable[[torch.optim.RMSprop], Any]:
    """torch's own step, without the hooks that torch puts around every optimiser's: ours has them already."""
    step: Any = torch.optim.RMSprop.step
    return step.__wrapped__ if getattr(step, "hooked", False) else step
