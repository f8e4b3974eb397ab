"""Every unbiased estimator on plain logits against the enumerated gradient."""

from __future__ import annotations

from itertools import product
from math import prod

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
    if base.dim() == 2 and name == "disarm":
        pytest.skip("its second noise has no cells to list; see below")
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


# --- DisARM of categorical variables --------------------------------------------------------------------------------


def pair_probability(q: list[float], z: int, other: int) -> float:
    """Of both samples, descending the tree of states together until they part, then each by itself; written again."""
    size = 1 << (len(q) - 1).bit_length()
    q = q + [0.0] * (size - len(q))
    if size == 1 or sum(q) == 0:
        return 1.0
    half = size // 2
    p, up, other_up = sum(q[half:]) / sum(q), z >= half, other >= half
    below = q[half:] if up else q[:half]
    if up == other_up:
        return max(2 * p - 1 if up else 1 - 2 * p, 0) * pair_probability(below, z % half, other % half)
    parted = q[half:] if other_up else q[:half]
    if min(p, 1 - p) == 0:
        return 0.0
    return min(p, 1 - p) * below[z % half] / sum(below) * parted[other % half] / sum(parted)


TREES = {
    **{name: logits for name, logits in LOGITS.items() if logits.dim() == 2},
    "two states": torch.tensor([[0.3, -1.0], [0.2, 0.9]], dtype=torch.float64),
    "five states": torch.tensor([[0.3, -1.0, 0.6, 1.5, -0.2]], dtype=torch.float64),
    "impossible states": torch.tensor([[-torch.inf, 0.4, -torch.inf, 1.0, -0.3]], dtype=torch.float64),
}


@pytest.mark.parametrize("kind", TREES)
def test_disarm_over_all_pairs_of_samples_is_the_exact_gradient(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    base, f = TREES[kind].clone().requires_grad_(), Rugged()
    units, states = base.shape
    z = torch.tensor(list(product(range(states), repeat=units)))
    pairs = [(one, other) for one in z.tolist() for other in z.tolist()]
    q = base.detach().softmax(-1).tolist()
    weights = torch.tensor(
        [prod(pair_probability(*unit) for unit in zip(q, *pair, strict=True)) for pair in pairs], dtype=torch.float64
    )
    assert weights.sum() == pytest.approx(1)
    kept = weights > 0
    first, second = (torch.tensor([pair[k] for pair in pairs])[kept] for k in (0, 1))
    monkeypatch.setattr(antithetic, "sample", lambda logits, noise: first)
    monkeypatch.setattr(functional.tree, "opposite_of", lambda logits, z, noise: second)
    answer = functional.disarm(base.expand(int(kept.sum()), -1, -1), f)
    found = torch.autograd.grad(-(weights[kept] * answer.surrogate).sum(), [base, f.slope])
    torch.testing.assert_close(found, exact_gradient(base, f), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("kind", TREES)
def test_the_opposite_has_the_probabilities_of_the_tree_given_the_sample(kind: str) -> None:
    """One number of each of many equal parts of [0, 1): shares are right within as many parts as there are edges."""
    parts, logits = 4000, TREES[kind]
    noise = ((torch.arange(parts, dtype=torch.float64) + 0.5) / parts)[:, None]
    for unit, q in zip(logits, logits.softmax(-1).tolist(), strict=True):
        for z in [state for state, share in enumerate(q) if share > 0]:
            first = torch.full((parts, 1), z)
            other = functional.tree.opposite_of(unit.expand(parts, 1, -1), first, noise)
            shares = other.flatten().bincount(minlength=len(q)) / parts
            expected = torch.tensor([pair_probability(q, z, k) / q[z] for k in range(len(q))])
            torch.testing.assert_close(shares, expected, rtol=0, atol=2 / parts)


def test_every_function_says_whether_it_is_biased_and_unbiased_ones_are_listed_here() -> None:
    unbiased = set()
    for name in set(functional.__all__) - {"Answer", "SteinControl"}:
        text = getattr(functional, name).__doc__
        assert ("Unbiased" in text) != ("BIASED" in text), name
        unbiased |= {name} if "Unbiased" in text else set()
    assert unbiased == {name.partition(",")[0] for name in CASES} | {"arms"}
