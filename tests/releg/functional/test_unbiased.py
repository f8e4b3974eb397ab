"""Every unbiased estimator on plain logits against the enumerated gradient."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor

from releg import exact, functional
from releg.functional import Answer, antithetic
from tests.releg.estimators.patterns import pattern_probabilities
from tests.releg.functional.cases import CASES, LOGITS, Case, Rugged, exact_gradient, expected_gradient


@pytest.mark.parametrize("kind", LOGITS)
@pytest.mark.parametrize("name", CASES)
def test_expected_estimate_is_the_exact_gradient(name: str, kind: str) -> None:
    case, base, f = CASES[name], LOGITS[kind].clone().requires_grad_(), Rugged()
    if base.dim() == 2 and not case.is_categorical:
        with pytest.raises(ValueError, match=r"expected \(N, units\): .* has no form for categorical variables; use"):
            case.function(base[None], f)
        return
    torch.testing.assert_close(
        expected_gradient(case, base, f), exact_gradient(base, f, case.bound), rtol=1e-9, atol=1e-11
    )


def test_the_enumeration_notices_a_bias() -> None:
    def biased(logits: Tensor, f: Rugged, noise: Tensor) -> Answer:
        value, _ = functional.likelihood_ratio(logits, f, noise)
        return functional.likelihood_ratio(logits, f, noise, baseline=0.5 * value)

    base, f = LOGITS["bernoulli"].clone().requires_grad_(), Rugged()
    found = expected_gradient(Case(biased), base, f)
    assert (found[0] - exact_gradient(base, f)[0]).abs().max() > 1e-2


@pytest.mark.parametrize("kind", ["bernoulli", "saturated"])
@pytest.mark.parametrize("samples", [2, 3, 4])
def test_arms_over_all_patterns_of_its_samples_is_the_exact_gradient(
    samples: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its copula has no cells to list, but the patterns of its samples have probabilities."""
    base, f = LOGITS[kind].clone().requires_grad_(), Rugged()
    patterns = exact.states(samples).double()
    z = torch.tensor(list(product(patterns.tolist(), repeat=len(base)))).double().permute(2, 0, 1)  # (K, rows, units)
    weights = torch.ones(z.shape[1], dtype=torch.float64)
    for unit, mean in enumerate(torch.sigmoid(base.detach())):
        weights *= pattern_probabilities(mean.expand(len(weights)), z[:, :, unit].T)
    monkeypatch.setattr(antithetic, "sample", lambda logits, noise: z[:1])
    monkeypatch.setattr(antithetic, "coupled_samples", lambda logits, first, noise: z[1:])
    answer = functional.arms(base.expand(len(weights), -1), f, samples=samples)
    found = torch.autograd.grad(-(weights * answer.surrogate).sum(), [base, f.slope])
    torch.testing.assert_close(found, exact_gradient(base, f), rtol=1e-9, atol=1e-11)


def test_every_function_says_whether_it_is_biased_and_unbiased_ones_are_listed_here() -> None:
    unbiased = set()
    for name in set(functional.__all__) - {"Answer", "SteinControl"}:
        text = getattr(functional, name).__doc__
        assert ("Unbiased" in text) != ("BIASED" in text), name
        unbiased |= {name} if "Unbiased" in text else set()
    assert unbiased == {name.partition(",")[0] for name in CASES} | {"arms"}
