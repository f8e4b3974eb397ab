"""Engines on CUDA tensors without a GPU: nothing is left on the CPU, and which of them wait for the device is known."""

from collections import Counter

import pytest
import torch

from releg.estimators.base import Estimate, Estimator
from releg.estimators.common_random_numbers import CommonRandomNumbers
from releg.kernels import ENGINES, flip_differences
from releg.sbn import SigmoidBeliefNet
from tests.releg.estimators.cases import CASES
from tests.releg.helpers import random_model, random_x
from tests.without_gpu.fake import FakeTensors, fake_cuda, move_to_cuda

LAYERS = [6, 5, 4]
ROWS = 4

# What makes an estimate wait for the device, with engines other than the default
WAITS = {"crn dense": {"copy"}, "crn batched": {"item", "nonzero"}}


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


@pytest.mark.parametrize("name", WAITS)
def test_other_engines_answer_on_cuda_and_wait_for_it(name: str) -> None:
    """tests/lightning_modules/test_cuda_step.py takes whole steps with every shipped estimator."""
    answer, waits = estimated(CASES[name].make())
    tensors = [answer.elbo, answer.surrogate, *answer.logits, *(answer.logit_grads or [])]
    assert {tensor.device.type for tensor in tensors} == {"cuda"}
    assert set(waits) == WAITS[name]


@pytest.mark.parametrize("layers", [[7], [6, 5], [6, 5, 4, 3]])
def test_common_random_numbers_never_wait_on_cuda(layers: list[int]) -> None:
    model = SigmoidBeliefNet(12, layers)
    with fake_cuda() as waits:
        move_to_cuda(model)
        x = torch.empty(ROWS, 12, device="cuda")
        answer = CommonRandomNumbers().estimate(model, x, model.draw_noise(x))
    assert [gradient.shape for gradient in answer.logit_grads or []] == [(ROWS, size) for size in layers]
    assert not waits.counts


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
