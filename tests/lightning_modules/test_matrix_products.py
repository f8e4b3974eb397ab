"""oneDNN takes over the products of float32 matrices on a CPU, and the numbers stay."""

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from lightning_modules.matrix_products import HAS_ONEDNN, ByOneDNN

PRODUCT = torch.ops.releg.product.default

pytestmark = pytest.mark.skipif(not HAS_ONEDNN, reason="torch was built without oneDNN")


def products(left: Tensor, right: Tensor, bias: Tensor) -> list[Tensor]:
    """Three that oneDNN takes, of all strides; a small one, one in float64, one with a matrix for a bias."""
    by_onednn = [left @ right, torch.addmm(bias, left, right), right.T @ left.T]
    others = [left @ right[:, :1], left.double() @ right.double(), torch.addmm(left[:, :120], left, right)]
    return [*by_onednn, *others]


def test_float32_products_become_onednns_with_the_same_numbers() -> None:
    generator = torch.Generator().manual_seed(0)
    matrices = [torch.randn(*size, generator=generator) for size in ((100, 200), (200, 120), (120,))]
    traced = make_fx(products, tracing_mode="fake")(*matrices)
    ByOneDNN()(traced.graph)
    traced.recompile()
    taken = traced.graph.find_nodes(op="call_function", target=PRODUCT)
    assert len(taken) == 3
    for answer, expected in zip(traced(*matrices), products(*matrices), strict=True):
        torch.testing.assert_close(answer, expected, rtol=1e-5, atol=1e-4)


def test_torch_finds_nothing_wrong_in_the_operator() -> None:
    for bias in (None, torch.ones(3)):
        torch.library.opcheck(PRODUCT, (torch.ones(2, 4), torch.ones(3, 4).T, bias))
