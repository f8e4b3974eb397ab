"""Estimators on plain logits: unbiased by enumeration, and equal to those of a sigmoid belief net with one layer."""

from __future__ import annotations

import doctest
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, product

import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from releg import bernoulli, functional
from releg.estimators.arm import Arm
from releg.estimators.base import Estimator
from releg.estimators.common_random_numbers import CommonRandomNumbers
from releg.estimators.disarm import DisArm
from releg.estimators.gumbel_softmax import GumbelSoftmax
from releg.estimators.leave_one_out import LeaveOneOut
from releg.estimators.likelihood_ratio import LikelihoodRatio
from releg.estimators.reinmax import ReinMax
from releg.estimators.straight_through import StraightThrough
from releg.functional import Answer
from releg.functional.variables import sample
from tests.releg.discrete.choices import change_weights, choice_cells, plain_chances
from tests.releg.helpers import largest_z, random_model, random_x

Function = Callable[..., Answer]


@dataclass(frozen=True)
class Case:
    """An unbiased estimator, and what its noise looks like."""

    function: Function
    samples: int = 1
    opposite: bool = False  # whether 1 - noise is compared with the means
    is_categorical: bool = True
    flips: int = 0  # how many it chooses at random
    even: bool = False  # whether each with the same chance


CASES = {
    "likelihood_ratio": Case(functional.likelihood_ratio),
    "likelihood_ratio, baseline": Case(partial(functional.likelihood_ratio, baseline=1.7)),
    "leave_one_out": Case(functional.leave_one_out, samples=2),
    "leave_one_out, 3 samples": Case(partial(functional.leave_one_out, samples=3), samples=3),
    "common_random_numbers": Case(functional.common_random_numbers),
    "common_random_numbers, 1 flip": Case(partial(functional.common_random_numbers, flips=1), flips=1),
    "common_random_numbers, 3 flips": Case(partial(functional.common_random_numbers, flips=3), flips=3),
    "pruned": Case(functional.pruned, flips=1),
    "bitflip": Case(functional.bitflip, flips=1, even=True),
    "arm": Case(functional.arm, opposite=True, is_categorical=False),
    "disarm": Case(functional.disarm, opposite=True, is_categorical=False),
}
LOGITS = {
    "bernoulli": torch.tensor([0.3, -1.2, 0.8], dtype=torch.float64),
    "saturated": torch.tensor([30.0, -30.0, 0.4], dtype=torch.float64),
    "categorical": torch.tensor([[0.3, -1.0, 0.6], [1.1, 0.2, -0.5]], dtype=torch.float64),
    "saturated categorical": torch.tensor([[30.0, -30.0, 0.0], [0.2, 0.0, 0.1]], dtype=torch.float64),
}


class Rugged:
    """f that is not differentiable by z, and has a parameter."""

    def __init__(self) -> None:
        self.slope = torch.tensor([0.4, -1.3, 0.7], dtype=torch.float64, requires_grad=True)

    def __call__(self, z: Tensor) -> Tensor:
        values = z.double()
        parity = values.sum(-1).long() % 2
        return 2.0 * parity + torch.sin((values + 1) @ self.slope[: z.shape[-1]]) + (values[..., 0] * 1.6).round()


def exact_gradient(logits: Tensor, f: Rugged) -> tuple[Tensor, ...]:
    """Of sum_z q(z) f(z), by logits and the parameter of f."""
    is_binary = logits.dim() == 1
    states = 2 if is_binary else logits.shape[-1]
    z = torch.tensor(list(product(range(states), repeat=len(logits))))
    if is_binary:
        log_q = bernoulli.log_prob(logits, z.double()).sum(1)
    else:
        log_q = logits.log_softmax(-1).expand(len(z), -1, -1).gather(2, z[..., None]).sum((1, 2))
    return torch.autograd.grad((log_q.exp() * f(z)).sum(), [logits, f.slope])


def unit_cells(logits: Tensor, opposite: bool) -> list[tuple[float, float]]:
    """(noise, width) of the cells of one unit."""
    if logits.dim() == 0:
        inner = [torch.sigmoid(logits), *([torch.sigmoid(-logits)] if opposite else [])]
    else:
        inner = list(logits.softmax(-1).flip(-1).cumsum(-1)[:-1])
    edges = [0.0, *sorted(float(edge) for edge in inner), 1.0]
    return [((low + high) / 2, high - low) for low, high in pairwise(edges)]


def noise_cells(logits: Tensor, case: Case) -> tuple[Tensor, Tensor]:
    """Noise (samples, C, units) of all combinations of cells, and their probabilities (C,)."""
    units = [unit_cells(unit, case.opposite) for unit in logits.detach()] * case.samples
    cells = torch.tensor(list(product(*units)), dtype=torch.float64)  # (C, samples * units, 2)
    noise = cells[..., 0].view(len(cells), case.samples, len(logits)).transpose(0, 1)
    return noise.clamp(max=1 - 2**-53), cells[..., 1].prod(1)


def expected_gradient(case: Case, base: Tensor, f: Rugged) -> tuple[Tensor, ...]:
    """Over all noise and, where flips are chosen, over all the ways to choose them."""
    noise, weights = noise_cells(base, case)
    logits, choice = base.expand(len(weights), *base.shape), {}
    if case.flips:
        z = sample(logits, noise[0])
        weights_of_flips = change_weights(logits.detach(), z)
        even = 1 - one_hot(z.long(), 2 if base.dim() == 1 else base.shape[-1]).flatten(1).double()
        points, widths = choice_cells(plain_chances(even if case.even else weights_of_flips, case.flips))
        cells = points.shape[1]
        noise, logits = noise.repeat_interleave(cells, dim=1), base.expand(widths.numel(), *base.shape)
        weights = (weights[:, None] * widths).flatten()
        choice = {"choice": points.flatten().clamp(max=1 - 2**-53)}
    answer = case.function(logits, f, noise if case.samples > 1 else noise[0], **choice)
    return torch.autograd.grad(-(weights * answer.surrogate).sum(), [base, f.slope])


@pytest.mark.parametrize("kind", LOGITS)
@pytest.mark.parametrize("name", CASES)
def test_expected_estimate_is_the_exact_gradient(name: str, kind: str) -> None:
    case, base, f = CASES[name], LOGITS[kind].clone().requires_grad_(), Rugged()
    if base.dim() == 2 and not case.is_categorical:
        with pytest.raises(ValueError, match=r"expected \(N, units\): .* has no form for categorical variables; use"):
            case.function(base[None], f)
        return
    torch.testing.assert_close(expected_gradient(case, base, f), exact_gradient(base, f), rtol=1e-9, atol=1e-11)


def test_the_enumeration_notices_a_bias() -> None:
    def biased(logits: Tensor, f: Rugged, noise: Tensor) -> Answer:
        value, _ = functional.likelihood_ratio(logits, f, noise)
        return functional.likelihood_ratio(logits, f, noise, baseline=0.5 * value)

    base, f = LOGITS["bernoulli"].clone().requires_grad_(), Rugged()
    found = expected_gradient(Case(biased), base, f)
    assert (found[0] - exact_gradient(base, f)[0]).abs().max() > 1e-2


# --- one home per formula: the estimators of sigmoid belief nets with one layer ---------------------------------------


@pytest.mark.parametrize(
    ("function", "estimator"),
    [
        (functional.likelihood_ratio, LikelihoodRatio()),
        (partial(functional.leave_one_out, samples=3), LeaveOneOut(samples=3)),
        (functional.common_random_numbers, CommonRandomNumbers(engine="dense")),
        (functional.arm, Arm()),
        (functional.disarm, DisArm()),
        (functional.straight_through, StraightThrough()),
        (functional.reinmax, ReinMax()),
        (partial(functional.gumbel_softmax, temperature=0.7), GumbelSoftmax(temperature=0.7)),
    ],
)
def test_a_net_with_one_layer_gets_the_gradient_of_its_estimator(function: Function, estimator: Estimator) -> None:
    model, x = random_model(5, [4]), random_x(6, 5)
    noise = torch.rand(estimator.samples, 6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    estimate = estimator(model, x, [noise.transpose(0, 1).flatten(0, 1)])
    logits = model.inference_logits(0, x)
    has_slope = isinstance(estimator, StraightThrough | GumbelSoftmax | ReinMax)

    def f(z: Tensor) -> Tensor:
        terms = zip(model.generative_logits([z]), [x, z], strict=True)
        log_p = torch.stack([bernoulli.relaxed_log_prob(a, value).sum(-1) for a, value in terms]).sum(0)
        log_q = bernoulli.relaxed_log_prob(logits if has_slope else logits.detach(), z).sum(-1)
        return log_p - log_q

    answer = function(logits, f, noise if estimator.samples > 1 else noise[0])
    inference = list(model.inference[0].parameters())
    ours = torch.autograd.grad(answer.surrogate.sum(), inference, retain_graph=True)
    theirs = torch.autograd.grad(estimate.surrogate.sum(), inference)
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-11)
    if not isinstance(estimator, Arm | DisArm):  # these average over the opposite as well
        torch.testing.assert_close(answer.value, estimate.elbo)


def test_arms_with_two_samples_is_disarm() -> None:
    logits = torch.randn(50, 4, dtype=torch.float64, requires_grad=True)
    noise, f = torch.rand(2, 50, 4, dtype=torch.float64), Rugged()
    f.slope = torch.randn(4, dtype=torch.float64)
    ours, theirs = functional.arms(logits, f, noise, samples=2), functional.disarm(logits, f, noise[0])
    grads = [torch.autograd.grad(answer.surrogate.sum(), logits)[0] for answer in (ours, theirs)]
    torch.testing.assert_close(grads[0], grads[1])
    torch.testing.assert_close(ours.value, theirs.value)


@pytest.mark.parametrize("kind", ["bernoulli", "saturated"])
@pytest.mark.parametrize("samples", [3, 4])
def test_the_mean_of_arms_is_within_sampling_error_of_the_exact_gradient(samples: int, kind: str) -> None:
    """The copula has no cells to list."""
    base, f, rows = LOGITS[kind].clone().requires_grad_(), Rugged(), 20_000
    logits = base.detach().expand(rows, -1).clone().requires_grad_()
    answer = functional.arms(logits, f, generator=torch.Generator().manual_seed(4), samples=samples)
    (estimates,) = torch.autograd.grad(-answer.surrogate.sum(), logits)
    error = estimates.mean(0) - exact_gradient(base, f)[0]
    scores = error / (estimates.std(0) / rows**0.5).clamp(min=1e-9)
    assert scores.abs().max() < largest_z(len(scores))


# --- relaxations ----------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("kind", LOGITS)
def test_reinmax_is_unbiased_where_f_is_quadratic_in_one_unit(kind: str) -> None:
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

    answer = functional.reinmax(logits, f, noise[0])
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


# --- how they are called --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at_once", [2, 3, 100])
@pytest.mark.parametrize("flips", [None, 2])
def test_many_flips_at_once_give_the_same(at_once: int, flips: int | None) -> None:
    x = torch.randn(6, 4, dtype=torch.float64)
    for shape in ((6, 4), (6, 4, 3)):
        logits = torch.randn(shape, dtype=torch.float64, requires_grad=True)
        noise, choice = torch.rand(6, 4, dtype=torch.float64), torch.rand(6, dtype=torch.float64)

        def f(z: Tensor) -> Tensor:
            return torch.sin(z * x).sum(1).cos()

        one, other = (
            functional.common_random_numbers(logits, f, noise, flips=flips, choice=choice, at_once=count)
            for count in (1, at_once)
        )
        grads = [torch.autograd.grad(answer.surrogate.sum(), logits)[0] for answer in (one, other)]
        torch.testing.assert_close(grads[0], grads[1])


@pytest.mark.parametrize(("flips", "calls"), [(None, 7), (1, 2), (3, 4)])
def test_f_is_called_once_per_flip(flips: int | None, calls: int) -> None:
    counted = []

    def f(z: Tensor) -> Tensor:
        counted.append(len(z))
        return z.double().sum(1)

    functional.common_random_numbers(torch.zeros(5, 3, 3), f, flips=flips)
    assert counted == [5] * calls


@pytest.mark.parametrize("name", CASES)
def test_answers_follow_the_generator_the_precision_and_the_device(name: str) -> None:
    def total(z: Tensor) -> Tensor:
        return z.to(logits.dtype).sum(1)

    shape = (4, 3, 3) if CASES[name].is_categorical else (4, 3)
    for dtype in (torch.float32, torch.float64):
        logits = torch.randn(shape, dtype=dtype, requires_grad=True)
        with torch.device("meta"):  # where a tensor made without saying where would be
            seeds = [torch.Generator("cpu").manual_seed(3) for _ in range(2)]
            first, second = (CASES[name].function(logits, total, generator=seed) for seed in seeds)
        assert first.value.dtype == dtype
        assert torch.equal(first.value, second.value)
        torch.testing.assert_close(first.surrogate, -first.value)
        assert not first.value.requires_grad


def test_the_docstring_example_runs() -> None:
    with torch.random.fork_rng():
        assert doctest.testmod(functional).failed == 0


# --- bad input ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("logits", "error", "message"),
    [
        (torch.zeros(3), ValueError, r"logits have shape \(3,\) .* expected floating-point \(N, units\) .*; add"),
        (torch.zeros(3, 2, dtype=torch.long), ValueError, "and are torch.int64, expected floating-point"),
        (torch.zeros(0, 2), ValueError, r"logits have shape \(0, 2\)"),
        (torch.zeros(3, 2, 1), ValueError, r"\(3, 2, 1\), expected at least 2 states; leave"),
        (torch.full((3, 2), torch.nan), FloatingPointError, "logits range from nan to nan, expected finite numbers"),
        (torch.full((3, 2), torch.inf), FloatingPointError, "range from inf to inf, expected finite .* -1e4"),
    ],
)
def test_logits_that_make_no_sense_are_refused(logits: Tensor, error: type[Exception], message: str) -> None:
    for function in (functional.likelihood_ratio, functional.common_random_numbers, functional.straight_through):
        with pytest.raises(error, match=message):
            function(logits, lambda z: z.sum(1))


def test_other_input_that_makes_no_sense_is_refused() -> None:
    logits = torch.zeros(3, 2, requires_grad=True)
    crn, lr = functional.common_random_numbers, functional.likelihood_ratio
    with pytest.raises(ValueError, match=r"f has shape \(3, 2\), expected \(3,\); sum over"):
        lr(logits, lambda z: z)
    with pytest.raises(TypeError, match=r"f gives a list, expected a tensor of shape \(3,\); use torch.as_tensor"):
        lr(logits, lambda z: z.sum(1).tolist())  # type: ignore[arg-type, return-value]
    with pytest.raises(FloatingPointError, match=r"f is inf at \[0.0, 0.0\], expected finite numbers; all states"):
        crn(logits, lambda z: 1 / z.sum(1), torch.tensor([[0.3, 0.7]]).expand(3, 2))
    with pytest.raises(ValueError, match=r"noise has shape \(3,\), expected \(3, 2\); leave it out"):
        crn(logits, lambda z: z.sum(1), torch.rand(3))
    with pytest.raises(ValueError, match=r"noise ranges from 2 to 2, expected uniform numbers in \[0, 1\)"):
        crn(logits, lambda z: z.sum(1), torch.full((3, 2), 2.0))
    with pytest.raises(ValueError, match="flips is 0, expected at least 1; None"):
        crn(logits, lambda z: z.sum(1), flips=0)
    with pytest.raises(ValueError, match="at_once is 0, expected at least 1; 1 calls f"):
        crn(logits, lambda z: z.sum(1), at_once=0)
    with pytest.raises(ValueError, match=r"baseline has shape \(5, 3\), expected \(3,\) or a number; give"):
        lr(logits, lambda z: z.sum(1), baseline=torch.zeros(5, 3))
    with pytest.raises(ValueError, match="samples is 1, expected at least 2; a sample is compared"):
        functional.leave_one_out(logits, lambda z: z.sum(1), samples=1)
    with pytest.raises(ValueError, match="temperature is 0, expected a positive number; the default"):
        functional.gumbel_softmax(logits, lambda z: z.sum(1), temperature=0)
    for function in (functional.straight_through, functional.gumbel_softmax):
        with pytest.raises(ValueError, match=r"f is not differentiable by z .*, expected torch functions of z; use"):
            function(logits, lambda z: z.detach().sum(1))
