"""torch.compile around a step's loss and around the optimiser's update: the same formulas, fused."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Callable
from importlib.util import find_spec
from types import MethodType
from typing import Any, Literal, TypeVar

import torch

Compile = bool | Literal["auto"]
Function = TypeVar("Function", bound=Callable[..., Any])

STEPS_WORTH_IT = 3000  # a new net and estimator take about 20 s to compile, and then save some milliseconds per step
BACKEND = "inductor"
MOST_VARIANTS = 64  # of one function in one process, which may have several nets and estimators

logger = logging.getLogger("releg")


def is_worth_compiling(setting: Compile, device: torch.device, steps: float) -> bool:
    """Whether a run of that many steps is compiled: a function of its settings, so that it stays so when it continues.

    Args:
        setting: whether to compile, or `auto`: if there is a compiler and the run is long enough.
        device: of the parameters.
        steps: of the whole run, without end if negative.
    """
    if setting == "auto" and 0 <= steps < STEPS_WORTH_IT:
        return False
    if setting and not has_compiler(device):
        logger.warning("no %s was found, so training steps are not compiled: slower, and the same", compiler_of(device))
        return False
    return bool(setting)


def compiler_of(device: torch.device) -> str:
    """The compiler that torch.compile needs for tensors on that device."""
    return (
        "triton" if device.type == "cuda" else os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")
    )


def has_compiler(device: torch.device) -> bool:
    """Whether the compiler for tensors on that device is installed."""
    name = compiler_of(device)
    return (find_spec(name) if device.type == "cuda" else shutil.which(name)) is not None


def compiled(function: Function) -> Function:
    """The function, compiled at its first call for the shapes that it gets there."""
    import torch._dynamo.config  # takes seconds
    import torch._inductor.config

    from lightning_modules.matrix_products import HAS_ONEDNN, ByOneDNN

    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)  # it warns of a CUDA without GPU
    torch._inductor.config.compile_threads = 1  # no processes of its own, which would survive a killed run
    if HAS_ONEDNN:
        torch._inductor.config.post_grad_custom_post_pass = ByOneDNN()
    torch._dynamo.config.recompile_limit = MOST_VARIANTS
    return torch.compile(function, dynamic=False, backend=BACKEND)  # type: ignore[return-value]


def compile_update(optimizer: torch.optim.Optimizer) -> None:
    """Let the optimiser compile its update. Learning rates enter as tensors: a new value compiles nothing again."""
    update = compiled(_unwrapped_step(optimizer))
    rates = [torch.tensor(group["lr"], dtype=torch.float64) for group in optimizer.param_groups]

    def step(self: torch.optim.Optimizer, closure: Callable[[], Any] | None = None) -> Any:
        loss = None if closure is None else closure()
        values = [group["lr"] for group in self.param_groups]
        for group, rate, value in zip(self.param_groups, rates, values, strict=True):
            group["lr"] = rate.fill_(value)
        try:
            update(self)
        finally:
            for group, value in zip(self.param_groups, values, strict=True):
                group["lr"] = value  # what schedules, loggers and checkpoints know
        return loss

    hooked = torch.optim.Optimizer.profile_hook_step(step)
    optimizer.step = MethodType(hooked, optimizer)  # type: ignore[method-assign]


def _unwrapped_step(optimizer: torch.optim.Optimizer) -> Callable[..., Any]:
    """The optimiser's step without the hooks that torch puts around it."""
    step: Any = type(optimizer).step
    return step.__wrapped__ if getattr(step, "hooked", False) else step
