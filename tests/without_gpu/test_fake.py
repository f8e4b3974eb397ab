"""The walk through autograd's graph, which takes autograd's place on fake CUDA tensors."""

from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from releg.estimators.base import Estimator
from tests.releg.estimators.cases import CASES
from tests.releg.helpers import random_model, random_x
from tests.without_gpu.fake import FakeTensors, backward, grad_by_walk, move_to_cuda


def answered(name: str, walked: bool) -> list[Tensor | None]:
    """Gradients by all parameters of model and estimator on the CPU, by autograd or by the walk."""
    model, x = random_model(12, [6, 5, 4], 0.7, 3), random_x(4, 12, 2)
    estimator: Estimator = CASES[name].make()
    estimator.attach(model, torch.Generator().manual_seed(1))
    answer = estimator(model, x, estimator.draw_noise(model, x, torch.Generator().manual_seed(2)))
    loss = answer.surrogate.sum()
    if answer.auxiliary_loss is not None:
        loss = loss + answer.auxiliary_loss.sum()
    backward(loss) if walked else loss.backward()
    return [parameter.grad for parameter in [*model.parameters(), *estimator.parameters()]]


@pytest.mark.parametrize("name", ["lr of the paper", "crn", "muprop", "relax", "sibling rodeo", "gumbel-rao", "vimco"])
def test_the_walk_answers_what_autograd_does(name: str) -> None:
    """On real tensors; relax, rebar and rodeo differentiate a gradient."""
    expected = answered(name, walked=False)
    with patch("torch.autograd.grad", grad_by_walk):
        answer = answered(name, walked=True)
    for a, b in zip(answer, expected, strict=True):
        assert (a is None) == (b is None)
        if a is not None and b is not None:
            assert (a - b).abs().max() <= 1e-12 * (1 + b.abs().max())


def test_a_module_on_cuda_keeps_what_is_trained_and_leaves_other_tensors_behind() -> None:
    module = torch.nn.BatchNorm1d(3)
    module.weight.requires_grad_(False)
    module.constant = torch.ones(3)
    with FakeTensors():
        move_to_cuda(module)
    assert module.running_mean is not None
    assert module.bias.is_cuda
    assert module.running_mean.is_cuda
    assert not module.constant.is_cuda
    assert [p.requires_grad for p in (module.weight, module.bias)] == [False, True]
