"""The paper's optimiser."""

import torch

from releg.rmsprop import paper_rmsprop


def test_steps_are_those_of_its_formula() -> None:
    """v <- 0.99 v + 0.01 g^2; parameter <- parameter - 0.001 g / (sqrt(v) + 1e-8), in float64."""
    value = torch.nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))
    optimizer = paper_rmsprop([value])
    expected, average = value.detach().clone(), torch.zeros(2, dtype=torch.float64)
    for gradient in torch.tensor([[3.0, -0.1], [1e-9, 5.0], [0.0, 2.0]], dtype=torch.float64):
        value.grad = gradient
        optimizer.step()
        average = 0.99 * average + 0.01 * gradient.square()
        expected -= 0.001 * gradient / (average.sqrt() + 1e-8)
    torch.testing.assert_close(value.detach(), expected, rtol=1e-14, atol=0)
