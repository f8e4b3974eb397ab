"""The tensors of a batch of flips stay within the bound that they are given, by torch's own count of allocations."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile, record_function

from releg.discrete import DiscreteModel, Gradient, Layer, Values, gradient
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


def answer_bytes(answer: Gradient) -> int:
    """Of the changes of f: each one, and what they make of the logits."""
    return sum(2 * f_k.numel() * f_k.element_size() for f_k in answer.logit_grads.values())


def tensor_levels(function: Callable[[], object], mark: str = "") -> list[int]:
    """Bytes that tensors took above what was there before, after each allocation and release while the function ran.

    Args:
        function: what is measured; its result is released afterwards.
        mark: if there are `torch.profiler.record_function`s of this name, count from the first to the last of them.
    """
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        result = function()
    del result
    events = recorded.profiler.kineto_results.events()
    marks = [event.end_ns() for event in events if event.name() == mark]
    changes = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
    level, levels = 0, [0]
    for time, change in changes:
        if not marks or min(marks) <= time <= max(marks):
            level += change
            levels.append(level)
    return levels


@pytest.mark.parametrize(
    ("problem", "memory_mib"), [(three_layers, 4.0), (three_layers, 16.0), (categorical, 0.5), (categorical, 2.0)]
)
def test_the_tensors_of_a_batch_stay_within_the_bound(
    problem: Callable[[], tuple[DiscreteModel, F, Tensor]], memory_mib: float
) -> None:
    (model, f, x), answers = problem(), []

    def marked(x: Tensor, z: Values) -> Tensor:
        with record_function("f"):
            return f(x, z)

    levels = tensor_levels(lambda: answers.append(gradient(model, marked, x, memory_mib=memory_mib)), "f")
    taken = max(levels) - answer_bytes(answers[0])
    assert taken <= memory_mib * 2**20
    assert taken > 0.2 * memory_mib * 2**20  # and does not stay below for nothing
