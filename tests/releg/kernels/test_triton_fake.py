"""Estimators on CUDA tensors without a GPU: nothing is left on the CPU, and who waits for the device is known."""

from collections import Counter
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from releg import bernoulli
from releg.estimators.base import Estimate, Estimator
from releg.estimators.common_random_numbers import CommonRandomNumbers
from releg.estimators.parts.simulation import simulate
from releg.kernels import ENGINES, flip_differences
from releg.sbn import SigmoidBeliefNet
from tests.releg.estimators.cases import CASES
from tests.releg.helpers import random_model, random_x
from tests.without_gpu.fake import FakeTensors, fake_cuda, move_to_cuda

LAYERS = [6, 5, 4]
ROWS = 4

# What makes an estimate wait for the device, and why. All others never do.
MATRIX = "log_product.py looks at the largest weight of a matrix"
KEPT = "the number of kept flips decides the size of the arrays that follow"
WAITS = {
    "crn dense": ({"copy"}, "the reference lists its flips on the CPU"),
    "crn batched": ({"item", "nonzero"}, f"{MATRIX}; the number of changed units decides a size"),
    "local expectation": ({"item"}, MATRIX),
    "local expectation, batched": ({"item", "nonzero"}, f"{MATRIX}; the engine is the batched one"),
    "local expectation with baselines": ({"item"}, MATRIX),
    "pruned": ({"nonzero"}, KEPT),
    "pruned, 2 flips": ({"nonzero"}, KEPT),
    "bitflip": ({"nonzero"}, KEPT),
    "bitflip, shared noise": ({"nonzero"}, KEPT),
    "ugc": ({"nonzero"}, KEPT),
    "ugc, shared noise": ({"nonzero"}, KEPT),
}


def estimated(estimator: Estimator) -> tuple[Estimate, Counter[str]]:
    """The answer on fake CUDA tensors, and what made the host wait."""
    model = SigmoidBeliefNet(12, LAYERS)
    estimator.attach(model)
    with fake_cuda() as waits:
        move_to_cuda(model)
        move_to_cuda(estimator)
        x = torch.empty(ROWS, 12, device="cuda")
        noise = estimator.draw_noise(model, x)
        answer = estimator.estimate(model, x.repeat_interleave(estimator.samples, dim=0), noise)
    return answer, waits.counts


@pytest.mark.long  # test_cuda_step.py takes whole steps with the shipped ones
@pytest.mark.parametrize("name", CASES)
def test_estimators_answer_on_cuda_and_wait_for_it_only_where_it_is_known(name: str) -> None:
    answer, waits = estimated(CASES[name].make())
    tensors = [answer.elbo, answer.surrogate, *answer.logits, *(answer.logit_grads or [])]
    assert {tensor.device.type for tensor in tensors} == {"cuda"}
    assert answer.elbo.shape == answer.surrogate.shape == (ROWS,)
    assert set(waits) == WAITS.get(name, (set(), ""))[0]


@pytest.mark.parametrize("layers", [[7], [6, 5], [6, 5, 4, 3]])
def test_common_random_numbers_never_wait_on_cuda(layers: list[int]) -> None:
    model = SigmoidBeliefNet(12, layers)
    with fake_cuda() as waits:
        move_to_cuda(model)
        x = torch.empty(ROWS, 12, device="cuda")
        answer = CommonRandomNumbers().estimate(model, x, model.draw_noise(x))
    assert [gradient.shape for gradient in answer.logit_grads or []] == [(ROWS, size) for size in layers]
    assert not waits.counts


class Waiting(Estimator):
    """A likelihood ratio with one planted `.item()`."""

    def estimate(self, model: SigmoidBeliefNet, x: Tensor, noise: Sequence[Tensor]) -> Estimate:
        simulation = simulate(model, x, noise)
        scale = max(1.0, simulation.signals[0].var().item())
        return simulation.answer([score / scale for score in simulation.scores], self.samples)


class Copying(Waiting):
    """One with a constant that every call copies to the device."""

    def estimate(self, model: SigmoidBeliefNet, x: Tensor, noise: Sequence[Tensor]) -> Estimate:
        simulation = simulate(model, x, noise)
        scale = torch.full((1,), 2.0).to(x.device)
        return simulation.answer([score / scale for score in simulation.scores], self.samples)


class LeftBehind(Waiting):
    """One with a constant on the CPU."""

    def estimate(self, model: SigmoidBeliefNet, x: Tensor, noise: Sequence[Tensor]) -> Estimate:
        simulation = simulate(model, x, noise)
        scale = torch.full((1,), 2.0)
        return simulation.answer([score / scale for score in simulation.scores], self.samples)


class NotRegistered(Waiting):
    """One whose tensor is no buffer, so that it does not move with the module."""

    def attach(self, model: SigmoidBeliefNet, generator: torch.Generator | None = None) -> None:
        self.average = torch.zeros(1)

    def estimate(self, model: SigmoidBeliefNet, x: Tensor, noise: Sequence[Tensor]) -> Estimate:
        simulation = simulate(model, x, noise)
        return simulation.answer([score - self.average for score in simulation.scores], self.samples)


def test_a_planted_item_and_a_planted_copy_are_counted() -> None:
    assert estimated(Waiting())[1] == Counter(item=1)
    assert estimated(Copying())[1] == Counter(copy=1)


@pytest.mark.parametrize("estimator", [LeftBehind, NotRegistered])
def test_a_tensor_left_on_the_cpu_is_noticed(estimator: type[Estimator]) -> None:
    with pytest.raises((RuntimeError, AssertionError), match=r"device|fake"):
        estimated(estimator())


def test_a_planted_item_in_the_triton_engine_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def waiting(noise: Tensor, logits: Tensor, sign: Tensor) -> Tensor:
        return sign * (torch.logit(noise) - logits).clamp(min=logits.abs().max().item())

    monkeypatch.setattr("releg.kernels.triton.margin_of", waiting)
    assert estimated(CommonRandomNumbers())[1] == Counter(item=len(LAYERS))


def test_a_constant_on_the_cpu_in_the_triton_engine_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    variance = bernoulli.variance
    monkeypatch.setattr(bernoulli, "variance", lambda logits: variance(logits) * torch.ones(1))
    with pytest.raises(RuntimeError, match="device"):
        estimated(CommonRandomNumbers(engine="triton"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.half])
def test_auto_takes_triton_for_cuda_tensors_and_batched_where_it_is_missing(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    def first() -> str:
        return next(name for name, engine in ENGINES.items() if engine.runs_on(x))

    with FakeTensors():
        x = torch.zeros(1, dtype=dtype, device="cuda")
        assert first() == ("batched" if dtype == torch.half else "triton")
        monkeypatch.setattr("releg.kernels.HAS_TRITON", False)
        assert first() == "batched"


def test_triton_refuses_cpu_tensors() -> None:
    model, x = random_model(5, [4, 3]), random_x(2, 5)
    path = model.infer(x, model.draw_noise(x))
    with pytest.raises(ValueError, match=r"x is torch.float64 on cpu, which engine 'triton' cannot compute on"):
        flip_differences("triton", model, path, model.generative_logits(path.z))
