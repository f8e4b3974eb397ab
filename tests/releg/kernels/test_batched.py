"""What is particular to the batched engine: products instead of softplus, and how long they may be."""

import pytest
import torch
from torch.nn.functional import logsigmoid

from releg.kernels import batched
from releg.kernels.dense import flip_differences
from releg.kernels.log_product import CHUNK, LogProduct
from tests.releg.helpers import random_model, random_x

ALL = slice(None)


@pytest.mark.parametrize("scale", [0.0, 0.1, 1.0, 10.0, 100.0, 1000.0])
@pytest.mark.parametrize("targets", [1, 7, 64, 65, 300])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_log_of_products_is_the_sum_of_softplus_differences(dtype: torch.dtype, targets: int, scale: float) -> None:
    generator = torch.Generator().manual_seed(targets)
    logits = scale * torch.randn(4, targets, generator=generator, dtype=torch.float64)
    weight = scale * torch.randn(6, targets, generator=generator, dtype=torch.float64)
    sign = 1 - 2 * torch.randint(2, (4, 6), generator=generator).double()
    logits, weight = logits.to(dtype), weight.to(dtype)
    before = -logits[:, None].double()  # softplus(r) = -logsigmoid(-r); torch's softplus is off by 2e-9 beyond 20
    expected = (logsigmoid(before) - logsigmoid(before - sign[..., None] * weight.double())).sum(-1)
    answer = LogProduct(logits, weight)(ALL, ALL, sign.to(dtype)).double()
    tolerance = 1e-12 if dtype == torch.float64 else 1e-5
    assert (answer - expected).abs().max() <= tolerance * (1 + expected.abs().max())


@pytest.mark.parametrize(("largest", "dtype"), [(0.5, torch.float32), (5.0, torch.float32), (60.0, torch.float64)])
def test_products_are_as_long_as_the_largest_weight_allows(largest: float, dtype: torch.dtype) -> None:
    log_product = LogProduct(torch.zeros(1, 200, dtype=dtype), torch.full((1, 200), largest, dtype=dtype))
    assert log_product.chunk == min(CHUNK, int(_room(dtype) / largest))


def _room(dtype: torch.dtype) -> float:
    return torch.tensor(torch.finfo(dtype).max, dtype=torch.float64).log().item() - 8


def test_weights_whose_exponential_overflows_are_not_multiplied_at_all() -> None:
    assert LogProduct(torch.zeros(1, 3), torch.full((2, 3), 90.0)).chunk == 0


@pytest.mark.parametrize("scale", [0.2, 2.0, 50.0])
def test_rows_in_which_no_unit_changed_need_no_simulation_to_be_right(scale: float) -> None:
    """Noise far from every threshold: nothing below a flipped unit changes, so only direct terms are left."""
    model, x = random_model(10, [6, 5, 4], scale, 1), random_x(5, 10, 1)
    for linear in model.inference[1:]:
        linear.bias.data = torch.full_like(linear.bias, 1000 * scale)
    path = model.infer(x, model.draw_noise(x, torch.Generator().manual_seed(1)))
    logits = [r.detach() for r in model.generative_logits(path.z)]
    for answer, expected in zip(
        batched.flip_differences(model, path, logits), flip_differences(model, path, logits), strict=True
    ):
        assert (answer - expected).abs().max() <= 1e-9 * (1 + expected.abs().max())
