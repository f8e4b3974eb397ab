"""Counts the GPU memory that a training step needs, on fake tensors: no GPU is needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from releg.estimators.base import Estimator, repeated
from releg.kernels.triton.products import factors_of
from releg.sbn import SigmoidBeliefNet
from releg.without_gpu.fake import FakeTensors, backward, move_to_cuda
from releg.without_gpu.waits import Waits


class Peak(TorchDispatchMode):
    """The peak number of bytes of the tensors made while it is active."""

    def __init__(self) -> None:
        super().__init__()
        self.alive: dict[int, tuple[StorageWeakRef, int]] = {}
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        answer = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(answer):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                self.alive[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())
        self.alive = {key: (ref, size) for key, (ref, size) in self.alive.items() if not ref.expired()}
        inside = bytes_inside(func.overloadpacket.__name__, args) if func.namespace == "releg" else 0
        self.bytes = max(self.bytes, inside + sum(size for _, size in self.alive.values()))
        return answer


def bytes_inside(operator: str, args: tuple[Any, ...]) -> int:
    """What an operator of the triton engine allocates for itself, which fake tensors do not show."""
    if operator == "log_products":
        return sum(part.nbytes for part in factors_of(*args[:2]))
    sign, single = args[:2]  # deeper_changes: factors of the next layer, and a list with room for every flip
    weight = torch.empty(sign.shape[1], single.shape[1], dtype=sign.dtype, device=sign.device)
    return sum(part.nbytes for part in factors_of(single, weight)) + 4 * sign.numel()


def bytes_of_steps(
    module: nn.Module,
    loss_of: Callable[[Tensor], Tensor],
    make_optimizer: Callable[[], torch.optim.Optimizer],
    shape: Sequence[int],
) -> int:
    """Of two training steps: parameters, gradients, the optimiser's state, and all that a step makes.

    An upper bound: no part of a graph is freed before its backward pass is over.

    Args:
        module: all that is trained; it is moved to fake CUDA.
        loss_of: the loss of x.
        make_optimizer: of the parameters that the module has then.
        shape: of x.
    """
    with FakeTensors(), Peak() as peak, Waits():
        move_to_cuda(module)
        optimizer = make_optimizer()
        for group in optimizer.param_groups:
            group["foreach"] = True  # as torch does on CUDA
        for _ in range(2):
            loss = loss_of(torch.empty(*shape, device="cuda"))
            optimizer.zero_grad()
            backward(loss)
            optimizer.step()
    return peak.bytes


def bytes_of_a_step(estimator: Estimator, data_size: int, layers: Sequence[int], rows: int) -> int:
    """Of a training step in float32 with RMSprop."""
    model = SigmoidBeliefNet(data_size, layers)
    estimator.attach(model)
    module = nn.ModuleList([model, estimator])

    def loss_of(x: Tensor) -> Tensor:
        noise = estimator.draw_noise(model, x)
        answer = estimator.estimate(model, repeated(x, estimator.samples), noise)
        loss = answer.surrogate.sum()
        return loss if answer.auxiliary_loss is None else loss + answer.auxiliary_loss.sum()

    return bytes_of_steps(module, loss_of, lambda: torch.optim.RMSprop(module.parameters()), (rows, data_size))
