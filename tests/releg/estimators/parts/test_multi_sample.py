"""What the estimators of the multi-sample bound share."""

import torch

from releg.estimators.local_disarm import LocalDisArm
from releg.estimators.parts.multi_sample import bound_changes, one_replaced
from releg.estimators.vimco import Vimco
from tests.releg.estimators.drawn import answer, drawn


def test_row_k_has_only_sample_k_replaced() -> None:
    f, g = torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[10.0, 20.0, 30.0]])
    assert one_replaced(f, g).tolist() == [[[10, 2, 3], [1, 20, 3], [1, 2, 30]]]


def test_changes_of_the_bound_are_those_of_its_definition() -> None:
    f, g = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = bound_changes(f, g)
    for k in range(3):
        only_k, all_but_k = f.clone(), g.clone()
        only_k[:, k], all_but_k[:, k] = g[:, k], f[:, k]
        change = f.logsumexp(1) - only_k.logsumexp(1) + all_but_k.logsumexp(1) - g.logsumexp(1)
        torch.testing.assert_close(found[:, k], change / 2)


def test_estimators_of_the_bound_agree_on_the_generative_net() -> None:
    model, x, noise = drawn(LocalDisArm(samples=3), [4, 3])
    ours, theirs = answer(LocalDisArm(samples=3), model, x, noise), answer(Vimco(samples=3), model, x, noise[:2])
    assert torch.equal(ours.elbo, theirs.elbo)
    generative = [*model.generative.parameters(), model.prior_logits]  # type: ignore[attr-defined]
    one, other = (torch.autograd.grad(found.surrogate.sum(), generative) for found in (ours, theirs))
    assert all(map(torch.equal, one, other))
