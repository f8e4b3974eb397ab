"""Counts, on fake tensors, what a computation needs of a GPU's memory: no GPU has to be there."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from releg.kernels.triton import TritonEngine
from releg.kernels.triton.products import factors_of
from releg.sbn import SigmoidBeliefNet


class Peak(TorchDispatchMode):
    """Bytes of all tensors made while it is active and alive at the same time, at most."""

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
        self.bytes = max(self.bytes, sum(size for _, size in self.alive.values()))
        return answer


def bytes_of_a_step(data_size: int, layers: tuple[int, ...], rows: int) -> int:
    """Of parameters, gradients and one state per parameter, a simulation, and the engine, in float32.

    What the operators allocate inside is not seen by fake tensors; the factors of the largest matrix and the list of
    flips are added.
    """
    with FakeTensorMode(), Peak() as peak:
        with torch.device("cuda"):
            model = SigmoidBeliefNet(data_size, layers)
        parameters = sum(parameter.nbytes for parameter in model.parameters())
        x = torch.empty(rows, data_size, device="cuda")
        path = model.infer(x, model.draw_noise(x))
        TritonEngine()(model, path, model.generative_logits(path.z))
    with FakeTensorMode(), Peak() as factors:
        logits, weight = (torch.empty(n, data_size, device="cuda") for n in (rows, layers[0]))
        factors_of(logits, weight)
    listed = 4 * rows * max(layers)
    return peak.bytes + 2 * parameters + factors.bytes + listed
