"""A whole training step on CUDA tensors without a GPU, with every shipped estimator: it leaves nothing on the CPU, and
who waits for the device is known.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from lightning_modules.sbn_module import SBNModule
from lightning_modules.shipped_estimators import read_estimator, shipped_names
from releg.estimators.base import Estimate, Estimator
from releg.estimators.likelihood_ratio import LikelihoodRatio
from tests.without_gpu.fake import backward, fake_cuda, move_to_cuda

# Which estimators wait, for what, and why. All others never do: LR and CRN are among them.
KEPT = "the number of kept flips decides the size of the arrays that follow"
WAITS = {
    "local_expectation": ({"item"}, "log_product.py looks at the largest weight of a matrix"),
    "pruned": ({"nonzero"}, KEPT),
    "bitflip": ({"nonzero"}, KEPT),
    "ugc": ({"nonzero"}, KEPT),
}


def train(estimator: Estimator, steps: int = 1, foreach: bool | None = None) -> tuple[SBNModule, Counter[str]]:
    """Noise, estimate, backward and RMSprop on fake CUDA tensors; what made the host wait."""
    module = SBNModule([6, 5, 4], estimator, 12)
    with fake_cuda() as waits:
        move_to_cuda(module)
        optimizer = module.build_optimizer()
        for group in optimizer.param_groups:
            group["foreach"] = foreach
        for _ in range(steps):
            x = torch.empty(4, 12, device="cuda")
            loss, elbo = module.loss_of(x, estimator.draw_noise(module.model, x))
            optimizer.zero_grad()
            backward(loss)
            optimizer.step()
            assert elbo.is_cuda
    return module, waits.counts


@pytest.mark.parametrize("name", shipped_names())
def test_a_step_stays_on_cuda_and_waits_only_where_it_is_known(name: str) -> None:
    module, waits = train(read_estimator(name))
    for parameter in module.model.parameters():
        assert parameter.grad is not None
        assert parameter.grad.is_cuda
    assert set(waits) == WAITS.get(name, (set(), ""))[0]


@pytest.mark.parametrize("foreach", [None, True])  # torch's RMSprop one by one, and as it runs on CUDA
@pytest.mark.parametrize("name", ["likelihood_ratio", "common_random_numbers"])
def test_later_steps_never_wait(name: str, foreach: bool | None) -> None:
    assert not train(read_estimator(name), steps=3, foreach=foreach)[1]


class Faulty(LikelihoodRatio):
    """A likelihood ratio with a fault in its answer."""

    def __init__(self, fault: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.fault = fault

    def estimate(self, model: Any, x: Tensor, noise: Sequence[Tensor]) -> Estimate:
        answer = super().estimate(model, x, noise)
        return replace(answer, surrogate=self.fault(answer.surrogate))


class BackwardFault(torch.autograd.Function):
    """The identity, whose backward pass reads a number from the device, or has a constant on the CPU."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, reads: bool) -> Tensor:
        ctx.reads = reads
        return values.clone()

    @staticmethod
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor, None]:
        return outer * (outer.sum().item() if ctx.reads else torch.ones(1)), None


class FaultyBackward(LikelihoodRatio):
    """A likelihood ratio with a fault in its backward pass."""

    def __init__(self, reads: bool) -> None:
        super().__init__()
        self.reads = reads

    def estimate(self, model: Any, x: Tensor, noise: Sequence[Tensor]) -> Estimate:
        answer = super().estimate(model, x, noise)
        return Estimate(answer.elbo, BackwardFault.apply(answer.surrogate, self.reads), answer.logits)


def test_a_planted_item_is_counted_in_the_estimate_and_in_the_backward_pass_and_so_is_a_copy() -> None:
    assert train(Faulty(lambda g: g / g.sum().item()))[1] == Counter(item=1)
    assert train(Faulty(lambda g: g * torch.ones(1).to(g.device)))[1] == Counter(copy=1)
    assert train(FaultyBackward(reads=True))[1] == Counter(item=1)


def test_a_constant_on_the_cpu_is_noticed_in_the_estimate_and_in_the_backward_pass() -> None:
    for estimator in Faulty(lambda g: g * torch.ones(1)), FaultyBackward(reads=False):
        with pytest.raises(RuntimeError, match="device"):
            train(estimator)
