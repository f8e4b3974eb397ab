"""A leaky net at many neighbours at once, by a sweep over its pieces, is the net."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from releg.estimators.parts.leaky_net import evaluate

LEAK = 0.3


def a_net(hidden: int) -> tuple[nn.Linear, nn.Linear]:
    torch.manual_seed(hidden)
    first, last = nn.Linear(2, hidden).double(), nn.Linear(hidden, 2).double()
    with torch.no_grad():
        first.weight[::5, 0] = 0.0  # flat
        first.weight[2::5] = first.weight[1:2].expand_as(first.weight[2::5])  # they bend at the same place
        first.bias[2::5] = first.bias[1:2].expand_as(first.bias[2::5])
    return first, last


def directly(first: nn.Linear, last: nn.Linear, s: Tensor, k: Tensor, steps: Tensor) -> Tensor:
    pairs = torch.stack([s[:, None] + steps, k[:, None].expand_as(steps)], dim=-1)
    answer: Tensor = last(leaky_relu(first(pairs), LEAK))
    return answer


@pytest.mark.parametrize("hidden", [1, 3, 7, 100])
def test_answers_and_gradients_are_those_of_the_net_at_each_point(hidden: int) -> None:
    first, last = a_net(hidden)
    generator = torch.Generator().manual_seed(1)
    s, k = (5 * torch.randn(6, generator=generator, dtype=torch.float64) for _ in range(2))
    steps = (30 * torch.randn(6, 40, generator=generator, dtype=torch.float64)).requires_grad_()
    weights = torch.randn(6, 40, 2, generator=generator, dtype=torch.float64)
    inputs = [steps, *first.parameters(), *last.parameters()]
    here, swept = evaluate(first, last, LEAK, s, k, steps)
    direct = directly(first, last, s, k, steps)
    torch.testing.assert_close(here, directly(first, last, s, k, 0 * steps)[:, 0], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(swept, direct, rtol=1e-12, atol=1e-12)
    expected = torch.autograd.grad((direct * weights).sum(), inputs)
    for got, wanted in zip(torch.autograd.grad((swept * weights).sum(), inputs), expected, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-11, atol=1e-10)


def test_where_a_unit_bends_both_its_lines_have_the_nets_value() -> None:
    first, last = a_net(8)
    nothing = torch.zeros(1, dtype=torch.float64)
    steps = (-first.bias / first.weight[:, 0])[None, 1:2].detach()
    _, swept = evaluate(first, last, LEAK, nothing, nothing, steps)
    torch.testing.assert_close(swept, directly(first, last, nothing, nothing, steps), rtol=1e-12, atol=1e-12)
