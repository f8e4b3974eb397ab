import sys

import pytest
import torch

from lightning_modules.bench.fresh_process import FreshProcess, answer_to
from lightning_modules.bench.memory import Request, request_for
from lightning_modules.bench.steps import Problem
from releg.sbn import SigmoidBeliefNet
from tests.releg.helpers import random_x

DATA_SIZE = 784


def request(name: str, layers: tuple[int, ...], rows: int) -> Request:
    weights = SigmoidBeliefNet(DATA_SIZE, layers).state_dict()
    return request_for(name, Problem(layers, weights, seed=0), random_x(rows, DATA_SIZE, 0, torch.float32))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the high-water mark cannot be reset")
@pytest.mark.long
def test_peak_is_about_that_of_the_arrays_and_does_not_depend_on_what_was_measured_before() -> None:
    # the dense engine holds at least log p of 100 x 20 flips of 784 pixels: logits, their signed copy, their logsigmoid
    least = 3 * 100 * 20 * DATA_SIZE * 4 / 2**20
    with FreshProcess() as fresh:
        first, small, again = (fresh.peak_mib(request("crn_dense", layers, 100)) for layers in ((20,), (1,), (20,)))
    assert first is not None
    assert small is not None
    assert again is not None
    assert least < first < 5 * least
    assert small < first / 2
    assert first / 2 < again < 2 * first  # the allocator's losses are not the same each time


def test_a_failure_there_is_told_here() -> None:
    _, failure = answer_to(request("no_such_estimator", (2,), 2))
    assert "there is no estimator no_such_estimator" in failure
