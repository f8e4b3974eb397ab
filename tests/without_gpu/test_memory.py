"""The memory that a training step needs on a GPU, counted on fake tensors at its peak."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.functional import softplus
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lightning_modules.sbn_module import SBNModule
from releg.estimators.base import Estimator
from releg.estimators.common_random_numbers import CommonRandomNumbers
from releg.kernels.triton.products import factors_of
from tests.without_gpu.fake import backward, fake_cuda, move_to_cuda


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
    return 4 * int(args[0].numel())  # deeper_changes: a list with room for every flip


def bytes_of_a_step(estimator: Estimator, rows: int) -> int:
    """Of two steps of SBN(200-200) in float32: parameters, gradients, RMSprop's state, and all that a step makes.

    An upper bound: no part of a graph is freed before its backward pass is over.
    """
    module = SBNModule([200, 200], estimator, 784)
    with fake_cuda(), Peak() as peak:
        move_to_cuda(module)
        optimizer = module.build_optimizer()
        for group in optimizer.param_groups:
            group["foreach"] = True  # as torch does on CUDA
        for _ in range(2):
            x = torch.empty(rows, 784, device="cuda")
            loss, _ = module.loss_of(x, estimator.draw_noise(module.model, x))
            optimizer.zero_grad()
            backward(loss)
            optimizer.step()
    return peak.bytes


def test_the_engine_has_no_array_of_rows_times_units_times_width() -> None:
    """Ten times the rows: much less than one (rows, units, 784) array more."""
    few, many = (bytes_of_a_step(CommonRandomNumbers("triton"), rows) for rows in (100, 1000))
    assert 0 < many - few < 900 * 200 * 784 * 4 / 10


def test_such_an_array_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def eager(logits: Tensor, weight: Tensor, sign: Tensor) -> Tensor:
        return softplus(logits[:, None] + sign[..., None] * weight).sum(-1) - softplus(logits).sum(-1)[:, None]

    monkeypatch.setattr("releg.kernels.triton.log_products", eager)
    assert bytes_of_a_step(CommonRandomNumbers("triton"), 100) > 100 * 200 * 784 * 4
