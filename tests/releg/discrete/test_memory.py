"""The tensors of a batch of flips stay within the bound that they are given, by torch's own count of allocations."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate

import pytest
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile, record_function

from releg.discrete import DiscreteModel, Layer, Values, gradient
from releg.examples.three_layer_vae import ThreeLayerVAE

F = Callable[[Tensor, Values], Tensor]


def three_layers() -> tuple[DiscreteModel, F, Tensor]:
    vae = ThreeLayerVAE(torch.full((784,), 0.5))
    return vae.model, vae.elbo, torch.randint(2, (50, 784)).float()


def categorical() -> tuple[DiscreteModel, F, Tensor]:
    """Hardly any arithmetic: what is copied and listed counts."""
    table = nn.Parameter(torch.randn(40, 6))
    model = DiscreteModel([Layer("a", (), lambda x, z: table.expand(len(x), -1, -1), 40, 6)])
    return model, lambda x, z: z["a"].sum(1).double(), torch.zeros(500, 1)


def tensor_levels(function: Callable[[], object], mark: str) -> list[int]:
    """Bytes that tensors take, relative to the first, after each allocation and release between the first and the last
    `record_function` of this name.
    """
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        function()
    events = recorded.profiler.kineto_results.events()
    marks = [event.end_ns() for event in events if event.name() == mark]
    changes = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
    return list(accumulate((change for time, change in changes if min(marks) <= time <= max(marks)), initial=0))


@pytest.mark.parametrize(
    ("problem", "memory_mib"), [(three_layers, 4.0), (three_layers, 16.0), (categorical, 0.5), (categorical, 2.0)]
)
def test_the_tensors_of_a_batch_stay_within_the_bound(
    problem: Callable[[], tuple[DiscreteModel, F, Tensor]], memory_mib: float
) -> None:
    (model, f, x), calls = problem(), []

    def marked(x: Tensor, z: Values) -> Tensor:
        calls.append(len(x))
        if len(calls) < 3:  # at the sample, and to check that rows do not depend on each other
            return f(x, z)
        with record_function("flips"):
            return f(x, z)

    levels = tensor_levels(lambda: gradient(model, marked, x, memory_mib=memory_mib), "flips")
    taken = max(levels) - min(levels)  # between the flips of one batch and those of the next, nothing is kept
    assert taken <= memory_mib * 2**20
    assert taken > 0.2 * memory_mib * 2**20  # and does not stay below for nothing
