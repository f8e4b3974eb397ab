"""What is particular to the batched engine: products instead of softplus, and how long they may be."""

import pytest
import torch
from torch.nn.functional import logsigmoid

from releg.kernels.log_product import LogProduct

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
