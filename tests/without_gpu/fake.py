"""A training step on CUDA tensors without a GPU: fake ones have a device, a shape and a type, and no numbers.

`fake_cuda` counts what would make the host wait for a GPU.

Autograd runs every step of a backward pass in a thread of the step's device, and there is none for a missing GPU. The
steps themselves can be called, so `gradients` walks autograd's graph in their place, in the calling thread.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

Arrived = dict[int, Tensor]  # gradients w.r.t. the outputs of a step of the forward pass, as far as known


class FakeTensors(FakeTensorMode):
    """All tensors made while it is active are fake, and may be on CUDA. Mixing devices raises an error."""

    def __deepcopy__(self, memo: dict[int, Any]) -> FakeTensors:
        """The mode itself: a copied tensor can be used with the others."""
        return self


def move_to_cuda(module: nn.Module) -> None:
    """Put a module's parameters and buffers on fake CUDA; a tensor that is neither stays behind, as with `.to`."""
    for part in module.modules():
        for name, value in part._parameters.items():
            if value is not None:
                part._parameters[name] = nn.Parameter(_on_cuda(value), requires_grad=value.requires_grad)
        for name, buffer in part._buffers.items():
            part._buffers[name] = None if buffer is None else _on_cuda(buffer)


def _on_cuda(value: Tensor) -> Tensor:
    return torch.empty(value.shape, dtype=value.dtype, device="cuda")


def backward(loss: Tensor) -> None:
    """Like `loss.backward()`: add to the `grad` of every leaf."""
    leaves = [node.variable for node in _nodes(loss) if hasattr(node, "variable")]
    for leaf, gradient in zip(leaves, gradients(loss, leaves), strict=True):
        if gradient is not None:
            leaf.grad = gradient if leaf.grad is None else leaf.grad + gradient


def gradients(output: Tensor, inputs: Sequence[Tensor], create_graph: bool = False) -> list[Tensor | None]:
    """Like `torch.autograd.grad` for an output () and inputs; None for inputs that the output does not depend on.

    It frees nothing on the way and calls no hooks.
    """
    arrived = _walk(output, create_graph)
    return [arrived[node].get(place) if node in arrived else None for node, place in map(_source, inputs)]


def _source(value: Tensor) -> tuple[Any, int]:
    """Where the gradient w.r.t. a tensor arrives."""
    edge = torch.autograd.graph.get_gradient_edge(value)
    return edge.node, edge.output_nr


def _nodes(output: Tensor) -> Iterator[Any]:
    """All steps of the graph, each once."""
    found, waiting = set(), [_source(output)[0]]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            yield node
            waiting += [following for following, _ in node.next_functions if following is not None]


def _walk(output: Tensor, create_graph: bool) -> dict[Any, Arrived]:
    """The gradients that arrive at every step."""
    nodes = list(_nodes(output))  # alive, so that each has one object in Python
    missing = Counter(following for node in nodes for following, _ in node.next_functions if following is not None)
    start, place = _source(output)
    arrived: dict[Any, Arrived] = defaultdict(dict, {start: {place: torch.ones_like(output)}})
    ready = [start]
    with torch.set_grad_enabled(create_graph):
        while ready:
            node = ready.pop()
            for (following, slot), gradient in _pushed(node, arrived[node]):
                _add(following, slot, gradient, arrived[following])
                missing[following] -= 1
                if not missing[following]:
                    ready.append(following)
    return arrived


def _pushed(node: Any, by_output: Arrived) -> list[tuple[tuple[Any, int], Tensor | None]]:
    """The next steps, and what this one passes on to each."""
    if hasattr(node, "variable"):  # a leaf
        return []
    following = [edge for edge in node.next_functions if edge[0] is not None]
    if not by_output:
        return [(edge, None) for edge in following]
    given = [by_output.get(place) for place in range(len(node._input_metadata))]
    if hasattr(node, "needs_input_grad"):  # a torch.autograd.Function, which answers for all its arguments
        answer, needed = node.apply(*given), node.needs_input_grad
    else:
        answer, needed = node(*given), [edge[0] is not None for edge in node.next_functions]
    answer = answer if isinstance(answer, tuple) else (answer,)
    wanted = [gradient for gradient, is_needed in zip(answer, needed, strict=True) if is_needed]
    return list(zip(following, wanted, strict=True))


def _add(node: Any, slot: int, gradient: Tensor | None, arrived: Arrived) -> None:
    """Record a gradient; it is an error if it is not on the device of its tensor, as in autograd."""
    if gradient is None:
        return
    expected = node._input_metadata[slot]
    if gradient.device != expected.device:
        raise RuntimeError(f"a gradient is on device {gradient.device}, its tensor on {expected.device}")
    gradient = gradient.sum_to_size(expected.shape)
    arrived[slot] = arrived[slot] + gradient if slot in arrived else gradient


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


@contextmanager
def fake_cuda() -> Iterator[Waits]:
    """All tensors made here are fake, and may be on CUDA. Mixing devices raises an error."""
    with FakeTensors(), patch("torch.autograd.grad", grad_by_walk), Waits() as waits:
        yield waits


def grad_by_walk(output: Tensor, inputs: Any, create_graph: bool = False, **_: Any) -> tuple[Tensor | None, ...]:
    """torch.autograd.grad, which does not work on fake CUDA."""
    several = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    return tuple(gradients(output, several, create_graph))
