"""What the estimators of the multi-sample bound share."""

import torch

from releg.estimators.parts.multi_sample import bound_changes


def test_changes_of_the_bound_are_those_of_its_definition() -> None:
    f, g = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = bound_changes(f, g)
    for k in range(3):
        only_k, all_but_k = f.clone(), g.clone()
        only_k[:, k], all_but_k[:, k] = g[:, k], f[:, k]
        change = f.logsumexp(1) - only_k.logsumexp(1) + all_but_k.logsumexp(1) - g.logsumexp(1)
        torch.testing.assert_close(found[:, k], change / 2)
