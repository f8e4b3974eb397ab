import pytest
import torch
from torch import Tensor
from torch.nn.functional import softplus

from releg.baselines import InputDependent, RunningAverage
from releg.estimators.common_random_numbers import CommonRandomNumbers
from releg.estimators.likelihood_ratio import LikelihoodRatio
from releg.kernels.triton.ops import log_products
from releg.sbn import SigmoidBeliefNet
from releg.without_gpu.fake import FakeTensors
from releg.without_gpu.memory import Peak, bytes_of_a_step


def test_memory_is_counted_at_its_peak() -> None:
    with FakeTensors(), Peak() as peak:
        first = torch.empty(1000, dtype=torch.float32, device="cuda")
        first = first + 1  # both are alive until the name is taken over
        first = first.view(10, 100)  # shares its memory
        del first
        torch.empty(100, dtype=torch.float64, device="cuda")
    assert peak.bytes == 8000


def test_what_an_operator_allocates_inside_is_counted() -> None:
    rows, units, targets = 30, 20, 50
    with FakeTensors():
        logits, weight, sign = (
            torch.empty(*s, device="cuda") for s in ((rows, targets), (units, targets), (rows, units))
        )
        with Peak() as peak:
            log_products(logits, weight, sign)
    assert peak.bytes == 4 * (rows * units + 2 * rows * targets + 2 * units * targets + units)


def test_the_engine_has_no_array_of_rows_times_units_times_width() -> None:
    """Ten times the rows: much less than one (rows, units, 784) array more."""
    few, many = (bytes_of_a_step(CommonRandomNumbers("triton"), 784, (200, 200), rows) for rows in (100, 1000))
    assert 0 < many - few < 900 * 200 * 784 * 4 / 10


def test_such_an_array_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def eager(logits: Tensor, weight: Tensor, sign: Tensor) -> Tensor:
        return softplus(logits[:, None] + sign[..., None] * weight).sum(-1) - softplus(logits).sum(-1)[:, None]

    monkeypatch.setattr("releg.kernels.triton.log_products", eager)
    assert bytes_of_a_step(CommonRandomNumbers("triton"), 784, (200, 200), 100) > 100 * 200 * 784 * 4


def test_a_step_needs_parameters_gradients_state_and_the_batch_at_least() -> None:
    parameters = sum(parameter.nbytes for parameter in SigmoidBeliefNet(784, [200, 200]).parameters())
    estimator = LikelihoodRatio([InputDependent(), RunningAverage()])
    assert bytes_of_a_step(estimator, 784, (200, 200), 100) > 3 * parameters + 100 * 784 * 4
