"""Counts, on fake CUDA tensors, what would make the host wait for a GPU."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class Waits(TorchDispatchMode):
    """Counts what makes the host wait for the device, and returns made-up results so that the computation goes on.

    A number becomes 1, and a search finds everything. Other operations that need a number from the device
    (masked_select, unique, equal) raise an error of the fake tensors.
    """

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name == "_local_scalar_dense":  # item(), bool(), float()
            self.counts["item"] += args[0].is_cuda
            return 1.0 if args[0].is_floating_point() else 1
        if name == "nonzero":
            self.counts["nonzero"] += 1
            return torch.zeros(args[0].numel(), args[0].dim(), dtype=torch.long, device=args[0].device)
        if name in ("index", "index_put", "index_put_", "_index_put_impl_") and any(map(_is_mask, args[1])):
            self.counts["nonzero"] += 1
            return args[0] if "put" in name else _chosen(args[0], args[1][0])
        answer = func(*args, **(kwargs or {}))
        if name in ("_to_copy", "copy_") and args[name == "copy_"].device != answer.device:
            self.counts["copy"] += 1
        return answer


def _chosen(values: Tensor, mask: Tensor) -> Tensor:
    return values.new_empty(mask.numel(), *values.shape[mask.dim() :])


def _is_mask(index: Tensor | None) -> bool:
    return index is not None and index.dtype == torch.bool
