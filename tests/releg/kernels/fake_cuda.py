"""CUDA tensors without a GPU: fake ones have a device, a shape and a type, and no numbers."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

PAIRS_FOUND = 3  # what nonzero answers: no number of them is right, and any will do


class Waits(TorchDispatchMode):
    """Counts what makes the host wait for the device, and answers in its place, so that the computation goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        if name == "_local_scalar_dense":  # item(), bool(), float()
            self.counts["item"] += 1
            return 1.0 if args[0].is_floating_point() else 1
        if name == "nonzero" or (name == "index" and any(_is_mask(index) for index in args[1])):
            self.counts["nonzero"] += 1
            if name == "nonzero":
                return torch.zeros(PAIRS_FOUND, args[0].dim(), dtype=torch.long, device=args[0].device)
            return args[0].new_empty(PAIRS_FOUND, *args[0].shape[args[1][0].dim() :])
        answer = func(*args, **kwargs)
        if name == "_to_copy" and args[0].device != answer.device:
            self.counts["copy"] += 1
        return answer


def _is_mask(index: Tensor | None) -> bool:
    return index is not None and index.dtype == torch.bool


@contextmanager
def fake_cuda() -> Iterator[Waits]:
    """All tensors made here are fake, and may be on CUDA. Mixing devices raises an error."""
    with FakeTensorMode(), patch("torch.autograd.grad", _gradients), Waits() as waits:
        yield waits


def move(module: nn.Module) -> None:
    """Put a module's parameters and buffers on fake CUDA; a tensor that is neither stays behind, as with `.to`."""
    for part in module.modules():
        for name, value in part._parameters.items():
            part._parameters[name] = None if value is None else nn.Parameter(_on_cuda(value))
        for name, buffer in part._buffers.items():
            part._buffers[name] = None if buffer is None else _on_cuda(buffer)


def _on_cuda(value: Tensor) -> Tensor:
    return torch.empty(value.shape, dtype=value.dtype, device="cuda")


def _gradients(outputs: Tensor, inputs: Any, create_graph: bool = False, **_: Any) -> tuple[Tensor, ...]:
    """Autograd has threads per device and does not work on fake CUDA: numbers of the right shape instead."""
    several = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    return tuple(torch.zeros_like(value) * outputs.sum() for value in several)
