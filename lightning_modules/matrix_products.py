"""Matrix products of compiled steps by oneDNN, whose code for AVX-512 runs on every maker's CPUs.

On AMD's, MKL uses AVX2: measured on one core of a Zen 5, it multiplies at 103 GFLOP/s and oneDNN at 160 to 210.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files
from torch.fx import Graph

SMALLEST = 1_000_000  # multiplications; oneDNN takes 10 microseconds more per call, in which MKL has done as many
HAS_ONEDNN = torch.backends.mkldnn.is_available()

aten = torch.ops.aten


def multiply(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    """left @ right, plus a bias if there is one, as a compiled step does it."""
    if HAS_ONEDNN and _gains(left, right):
        return product(left, right, bias)
    return left @ right if bias is None else torch.addmm(bias, left, right)


def product(left: Tensor, right: Tensor, bias: Tensor | None) -> Tensor:
    """left @ right, plus a bias if there is one, by oneDNN."""
    answer: Tensor = torch.ops.mkldnn._linear_pointwise.default(left, right.T, bias, "none", [], "")
    return answer


# Not torch.library.custom_op, whose answers take 4 microseconds longer: a step has 12 to 24 products
torch.library.define("releg::product", "(Tensor left, Tensor right, Tensor? bias) -> Tensor")
torch.library.impl("releg::product", "cpu", product)


@torch.library.register_fake("releg::product")
def _(left: Tensor, right: Tensor, bias: Tensor | None) -> Tensor:
    return left.new_empty(left.shape[0], right.shape[1])


class ByOneDNN(CustomGraphPass):
    """Replaces the products of float32 matrices in a graph on a CPU; a part of torch.compile."""

    def __call__(self, graph: Graph) -> None:
        """Change the graph in place."""
        for kind in (aten.mm.default, aten.addmm.default):
            for node in graph.find_nodes(op="call_function", target=kind):
                *bias, left, right = node.args
                fits = not node.kwargs and all(b.meta["val"].dim() == 1 for b in bias)
                if fits and _gains(left.meta["val"], right.meta["val"]):
                    node.target = torch.ops.releg.product.default
                    node.args = (left, right, bias[0] if bias else None)

    def uuid(self) -> bytes:
        """What torch's cache on disk knows it by."""
        return get_hash_for_files((__file__,))


def _gains(left: Tensor, right: Tensor) -> bool:
    """Whether oneDNN has such a product, and is faster."""
    is_usual = left.device.type == "cpu" and left.dtype == torch.float32
    return is_usual and left.shape[0] * left.shape[1] * right.shape[1] >= SMALLEST
