"""Computing on fake CUDA tensors, gradients included, with a count of what would make the host wait for a GPU."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from torch import Tensor

from releg.without_gpu.fake import FakeTensors, gradients
from releg.without_gpu.waits import Waits


@contextmanager
def fake_cuda() -> Iterator[Waits]:
    """All tensors made here are fake, and may be on CUDA. Mixing devices raises an error."""
    with FakeTensors(), patch("torch.autograd.grad", grad_by_walk), Waits() as waits:
        yield waits


def grad_by_walk(output: Tensor, inputs: Any, create_graph: bool = False, **_: Any) -> tuple[Tensor | None, ...]:
    """torch.autograd.grad, which does not work on fake CUDA."""
    several = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    return tuple(gradients(output, several, create_graph))
