"""Estimators that differentiate f by z: where they are exact, that their bias shows elsewhere, what they compute."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor

from releg import functional
from releg.estimators.parts.categorical_slopes import perturbed_given
from tests.releg.functional.cases import LOGITS, Case, Function, exact_gradient, noise_cells
from tests.releg.helpers import largest_z


@pytest.mark.parametrize("kind", LOGITS)
def test_straight_through_is_unbiased_where_f_is_linear_and_biased_where_not(kind: str) -> None:
    base = LOGITS[kind].clone().requires_grad_()
    weights = torch.randn(base.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    noise, probability = noise_cells(base, Case(functional.straight_through))
    logits = base.expand(len(probability), *base.shape)

    def means() -> Tensor:
        return torch.sigmoid(base) if base.dim() == 1 else base.softmax(-1)

    linear = functional.straight_through(logits, lambda z: (z * weights).flatten(1).sum(1), noise[0])
    (found,) = torch.autograd.grad(-(probability * linear.surrogate).sum(), base)
    (exact,) = torch.autograd.grad((means() * weights).sum(), base)
    torch.testing.assert_close(found, exact, rtol=1e-9, atol=1e-12)
    curved = functional.straight_through(logits, lambda z: (z * weights).flatten(1).sum(1).exp(), noise[0])
    (found,) = torch.autograd.grad(-(probability * curved.surrogate).sum(), base)
    by_unit = (weights.exp() * means() + 1 - means()) if base.dim() == 1 else (weights.exp() * means()).sum(-1)
    (exact,) = torch.autograd.grad(by_unit.prod(), base)
    assert (found - exact).abs().max() > 1e-3


@pytest.mark.parametrize("function", [functional.reinmax, functional.minimum_variance])
@pytest.mark.parametrize("kind", LOGITS)
def test_reinmax_is_unbiased_where_f_is_quadratic_in_one_unit(kind: str, function: Function) -> None:
    base = LOGITS[kind][:1].clone().requires_grad_()
    generator = torch.Generator().manual_seed(3)
    size = base.shape[-1]
    linear, square = (
        torch.randn(size, generator=generator).double(),
        torch.randn(size, size, generator=generator).double(),
    )
    noise, probability = noise_cells(base, Case(functional.reinmax))
    logits = base.expand(len(probability), *base.shape)

    def f(z: Tensor) -> Tensor:
        return z.flatten(1) @ linear + ((z.flatten(1) @ square) * z.flatten(1)).sum(1)

    answer = function(logits, f, noise[0])
    (found,) = torch.autograd.grad(-(probability * answer.surrogate).sum(), base)
    at_states = f(torch.eye(size).double()) if base.dim() == 2 else f(torch.tensor([[0.0], [1.0]]).double())
    q = base.softmax(-1)[0] if base.dim() == 2 else torch.cat([torch.sigmoid(-base), torch.sigmoid(base)])
    (exact,) = torch.autograd.grad((q * at_states).sum(), base)
    torch.testing.assert_close(found, exact, rtol=1e-9, atol=1e-12)


def test_gumbel_softmax_gives_the_discrete_sample_its_value_and_the_relaxed_one_its_derivative() -> None:
    logits = torch.randn(5, 2, 3, dtype=torch.float64, requires_grad=True)
    noise = torch.rand(5, 2, 3, dtype=torch.float64)
    weights = torch.randn(2, 3, dtype=torch.float64)
    seen = []

    def f(z: Tensor) -> Tensor:
        seen.append(z)
        return (z * weights).sum((1, 2)).square()

    answer = functional.gumbel_softmax(logits, f, noise, temperature=0.8)
    gumbels = -(-noise.log()).log()
    assert torch.equal(seen[0].argmax(-1), (logits + gumbels).argmax(-1))
    assert torch.equal(answer.value, f(seen[0]))
    relaxed = ((logits + gumbels) / 0.8).softmax(-1)
    torch.testing.assert_close(
        torch.autograd.grad(answer.surrogate.sum(), logits, retain_graph=True),
        torch.autograd.grad(-(relaxed * weights).sum((1, 2)).square().sum(), logits),
    )


# --- Gumbel-Rao and the variants of ReinMax -------------------------------------------------------------------------

BIASED: dict[str, Function] = {
    "straight_through": functional.straight_through,
    "gumbel_softmax": functional.gumbel_softmax,
    "gumbel_rao": functional.gumbel_rao,
    "reinmax": functional.reinmax,
    "minimum_variance": functional.minimum_variance,
    "reinmax-rao": partial(functional.reinmax, temperature=0.7, draws=3),
    "reinmax-cv": partial(functional.reinmax, temperature=1.5, draws=3, control=0.5),
}


def curved(z: Tensor) -> Tensor:
    return (2 * z[..., 0] + torch.arange(1, 4, dtype=z.dtype)[: z.shape[1]] * z[..., -1]).flatten(1).sum(1).div(2).exp()


def curved_bernoulli(z: Tensor) -> Tensor:
    return (z.double() @ torch.tensor([2.0, -1.0, 1.5], dtype=torch.float64)).exp()


@pytest.mark.parametrize("kind", ["bernoulli", "categorical"])
@pytest.mark.parametrize("name", BIASED)
def test_the_bias_is_detected(name: str, kind: str) -> None:
    base, rows = LOGITS[kind].clone().requires_grad_(), 20_000
    f = curved_bernoulli if kind == "bernoulli" else curved
    logits = base.detach().expand(rows, *base.shape).clone().requires_grad_()
    answer = BIASED[name](logits, f, generator=torch.Generator().manual_seed(4))
    (estimates,) = torch.autograd.grad(-answer.surrogate.sum(), logits)
    error = estimates.mean(0) - exact_gradient(base, f)[0]
    scores = error / (estimates.std(0) / rows**0.5)
    assert scores.abs().max() > 2 * largest_z(scores.numel())


def test_every_function_that_says_it_is_biased_is_tested_here() -> None:
    marked = {name for name in functional.__all__ if "BIASED" in (getattr(functional, name).__doc__ or "")}
    assert marked == {name.partition("-")[0] for name in BIASED}


def test_perturbed_logits_given_the_sample_are_those_that_gave_it() -> None:
    """The largest is the sample's; and with the samples' own frequencies they are plain Gumbel-perturbed logits."""
    rows, logits = 40_000, torch.tensor([1.0, -0.5, 0.2], dtype=torch.float64)
    generator = torch.Generator().manual_seed(5)
    noise = torch.rand(2, rows, 3, generator=generator, dtype=torch.float64)
    plain = logits - (-noise[0].log()).log()
    z = torch.nn.functional.one_hot(plain.argmax(-1), 3).double()
    given = perturbed_given(logits.expand(rows, 3), z, noise[1:])[0]
    assert torch.equal(given.argmax(-1), z.argmax(-1))
    for moment in (1, 2):
        difference = (given**moment).mean(0) - (plain**moment).mean(0)
        error = ((given**moment).var(0) / rows + (plain**moment).var(0) / rows).sqrt()
        assert (difference / error).abs().max() < largest_z(6)


@pytest.mark.parametrize("shape", [(6,), (6, 2), (3, 5)])
def test_minimum_variance_is_reinmax_for_two_states_and_else_varies_less(
    shape: tuple[int, ...],
) -> None:
    """The variance over slopes that are standard normal, exactly: the squared norm of d z / d logits over samples."""
    generator = torch.Generator().manual_seed(4)
    base = torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()
    noise, probability = noise_cells(base[:1], Case(functional.reinmax))
    logits = base[:1].expand(len(probability), *base[:1].shape)

    def slopes(function: Function) -> Tensor:
        """d z_j / d logits of every sample, (C, ..., J)."""
        columns = []
        for j in range(base[:1].numel()):
            surrogate = function(logits, lambda z, j=j: z.flatten(1)[:, j], noise[0]).surrogate
            columns.append(torch.autograd.grad(-surrogate.sum(), logits)[0])
        return torch.stack(columns, -1)

    least, reinmax = slopes(functional.minimum_variance), slopes(functional.reinmax)
    if shape == (3, 5):
        energy = [(probability * each.square().flatten(1).sum(1)).sum() for each in (least, reinmax)]
        assert energy[0] < 0.99 * energy[1]
    else:
        torch.testing.assert_close(least, reinmax)


@pytest.mark.parametrize("name", BIASED)
def test_a_state_that_cannot_occur_gets_no_gradient(name: str) -> None:
    logits = torch.tensor([[0.3, -torch.inf, 0.1]], dtype=torch.float64).expand(40, 1, 3).clone().requires_grad_()
    answer = BIASED[name](logits, lambda z: z.flatten(1).sum(1) + z[:, 0, 0].square())
    (found,) = torch.autograd.grad(answer.surrogate.sum(), logits)
    assert torch.isfinite(found).all()
    assert (found[..., 1] == 0).all()
    assert (found[..., 0] != 0).any()


@pytest.mark.parametrize("name", ["gumbel_rao", "reinmax", "reinmax-rao", "reinmax-cv", "minimum_variance"])
def test_two_states_are_a_bernoulli_variable(name: str) -> None:
    """The mean estimate for logits (0, a) is that for a, within sampling error."""
    rows, a = 20_000, torch.tensor([0.4, -1.1], dtype=torch.float64)
    means, errors = [], []
    for wide in (False, True):
        logits = (torch.stack([torch.zeros(2).double(), a], -1) if wide else a).expand(rows, *([2, 2] if wide else [2]))
        logits = logits.clone().requires_grad_()

        def f(z: Tensor, wide: bool = wide) -> Tensor:
            one = z[..., 1] if wide else z
            return (one @ torch.tensor([2.0, -1.0], dtype=torch.float64)).exp()

        answer = BIASED[name](logits, f, generator=torch.Generator().manual_seed(6 + wide))
        (found,) = torch.autograd.grad(answer.surrogate.sum(), logits)
        found = found[..., 1] if wide else found
        means.append(found.mean(0))
        errors.append(found.var(0) / rows)
    assert ((means[0] - means[1]) / (errors[0] + errors[1]).sqrt()).abs().max() < largest_z(2)


@pytest.mark.parametrize("kind", ["saturated", "saturated categorical"])
@pytest.mark.parametrize("name", BIASED)
def test_answers_stay_finite_where_variables_are_saturated(name: str, kind: str) -> None:
    for scale in (1, 10):
        logits = (scale * LOGITS[kind].float()).expand(50, *LOGITS[kind].shape).clone().requires_grad_()
        answer = BIASED[name](logits, lambda z: z.flatten(1).sum(1).square())
        (found,) = torch.autograd.grad(answer.surrogate.sum(), logits)
        assert torch.isfinite(found).all()
