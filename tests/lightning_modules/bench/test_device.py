"""What `releg bench --device cuda` times, on fake CUDA tensors; test_cuda.py runs it where there is a GPU."""

import pytest
import torch

from lightning_modules.bench import device
from lightning_modules.bench.floor import make_floors
from lightning_modules.bench.steps import Problem, available, make_step
from releg.sbn import SigmoidBeliefNet
from releg.without_gpu.fake import backward, move_to_cuda
from tests.releg.kernels.fake_cuda import fake_cuda

pytestmark = pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")


@pytest.mark.parametrize("name", available(device="cuda"))
def test_steps_on_cuda_leave_nothing_on_the_cpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    step = make_step(name, Problem((6, 5), SigmoidBeliefNet(12, [6, 5]).state_dict(), seed=0))
    monkeypatch.setattr(torch.Tensor, "backward", backward)
    monkeypatch.setattr(step, "generator", None)  # there is none for a missing GPU
    with fake_cuda():
        move_to_cuda(step.module)
        step.optimizer = step.module.build_optimizer()
        step(torch.zeros(4, 12, device="cuda"))
    for parameter in step.module.model.parameters():
        assert parameter.grad is not None
        assert parameter.grad.is_cuda
    assert step.parts == {}  # the host's times say nothing there


def test_floors_are_computed_on_the_device() -> None:
    with fake_cuda():
        for floor in make_floors(12, (6, 5), 4, ["lr", "crn_triton"], "cuda").values():
            floor(torch.zeros(4, 12, device="cuda"))
            assert all(tensor.is_cuda for product in floor._products for tensor in product)


def test_each_device_has_its_engine() -> None:
    assert {"lr", "crn_cpu", "crn_batched", "crn_dense"} <= set(available())
    assert available(device="cuda") == ["lr", "crn_triton", "crn_batched", "crn_dense"]
    assert "crn_triton" not in available()


def test_the_clock_waits_for_a_gpu_only(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[str] = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waited.append("waited"))
    assert device.now("cpu") <= device.now("cpu")
    assert waited == []
    device.now("cuda")
    assert waited == ["waited"]
