"""How the estimators on plain logits are called, and what they refuse."""

from __future__ import annotations

import doctest
import math
from functools import partial

import pytest
import torch
from torch import Tensor

from releg import functional
from tests.releg.functional.cases import CASES


@pytest.mark.parametrize(("flips", "calls"), [(None, 7), (1, 2), (3, 4)])
def test_f_is_called_once_per_flip(flips: int | None, calls: int) -> None:
    counted = []

    def f(z: Tensor) -> Tensor:
        counted.append(len(z))
        return z.double().sum(1)

    functional.common_random_numbers(torch.zeros(5, 3, 3, requires_grad=True), f, flips=flips)
    assert counted == [5] * calls


@pytest.mark.parametrize("name", CASES)
def test_answers_follow_the_generator_the_precision_and_the_device(name: str) -> None:
    def total(z: Tensor) -> Tensor:
        return z.to(logits.dtype).flatten(1).sum(1)

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
        (torch.full((3, 2), torch.inf), FloatingPointError, "range from inf to inf, expected finite numbers, or -inf"),
        (torch.full((3, 2, 2), -torch.inf), FloatingPointError, "range from -inf to -inf, expected finite numbers"),
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
    with pytest.raises(
        FloatingPointError, match=r"f is inf at \[0.0, 0.0\], expected finite numbers; improbable states"
    ):
        crn(logits, lambda z: 1 / z.sum(1), torch.tensor([[0.3, 0.7]]).expand(3, 2))
    with pytest.raises(ValueError, match=r"noise has shape \(3,\), expected \(3, 2\); leave it out"):
        crn(logits, lambda z: z.sum(1), torch.rand(3))
    with pytest.raises(ValueError, match=r"noise ranges from 2 to 2, expected uniform numbers in \[0, 1\)"):
        crn(logits, lambda z: z.sum(1), torch.full((3, 2), 2.0))
    for flips in (0, 3, math.nan, 1.0):
        with pytest.raises(
            ValueError, match=rf"flips is {flips}, expected a whole number from 1 to 2,.* None means all"
        ):
            crn(logits, lambda z: z.sum(1), flips=flips)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"baseline has shape \(5, 3\), expected \(3,\) or a number; give"):
        lr(logits, lambda z: z.sum(1), baseline=torch.zeros(5, 3))
    with pytest.raises(ValueError, match="samples is 1, expected at least 2; a sample is compared"):
        functional.leave_one_out(logits, lambda z: z.sum(1), samples=1)
    with pytest.raises(ValueError, match="temperature is 0, expected a positive number; the default"):
        functional.gumbel_softmax(logits, lambda z: z.sum(1), temperature=0)
    rodeo = partial(functional.rodeo, control=functional.SteinControl())
    for function in (functional.straight_through, functional.gumbel_softmax, functional.gumbel_rao, rodeo):
        with pytest.raises(
            ValueError, match=r"f is not differentiable w\.r\.t\. z .*, expected torch functions of z; use"
        ):
            function(logits, lambda z: z.detach().sum(1))
    weight = torch.zeros(1, requires_grad=True)
    with pytest.raises(ValueError, match=r"f is not differentiable w\.r\.t\. z"):  # but by something else
        rodeo(logits, lambda z: z.detach().sum(1) * weight)
    with pytest.raises(ValueError, match="draws is 0, expected at least 1; the default is 10"):
        functional.gumbel_rao(logits, lambda z: z.sum(1), draws=0)
    with pytest.raises(ValueError, match=r"control is 1\.0 with draws = 0, expected draws of at least 1"):
        functional.reinmax(logits, lambda z: z.sum(1), control=1.0)
    with pytest.raises(ValueError, match="samples is 1, expected at least 2; with one sample the bound is E f"):
        functional.local_disarm(logits, lambda z: z.sum(1), samples=1)
    with pytest.raises(ValueError, match="hidden is 0, expected at least 1; the default is 100"):
        functional.SteinControl(hidden=0)


ONE_HOT = ("likelihood_ratio", "leave_one_out", "common_random_numbers", "pruned", "bitflip", "disarm")
VECTORS_ONLY = ("straight_through", "gumbel_softmax", "gumbel_rao", "reinmax", "minimum_variance", "rodeo")


@pytest.mark.parametrize("name", ONE_HOT)
def test_f_takes_one_hot_vectors_where_it_is_asked_for(name: str) -> None:
    logits = torch.randn(6, 3, 4, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(3, 4, dtype=torch.float64)

    def of_states(z: Tensor) -> Tensor:
        return weights[torch.arange(3), z].sum(1).exp()

    def of_vectors(z: Tensor) -> Tensor:
        return (z * weights).sum((1, 2)).exp()

    grads = []
    for f, one_hot in ((of_states, False), (of_vectors, True)):
        answer = getattr(functional, name)(logits, f, generator=torch.Generator().manual_seed(1), one_hot=one_hot)
        grads.append(torch.autograd.grad(answer.surrogate.sum(), logits)[0])
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize("name", VECTORS_ONLY)
def test_f_takes_one_hot_vectors_by_the_same_argument_where_it_takes_nothing_else(name: str) -> None:
    logits, seen = torch.randn(6, 3, 4, requires_grad=True), []
    settings = {"control": functional.SteinControl()} if name == "rodeo" else {}

    def f(z: Tensor) -> Tensor:
        seen.append(z.shape)
        return z.square().sum((1, 2))

    getattr(functional, name)(logits, f, one_hot=True, **settings)
    assert set(seen) == {(6, 3, 4)}


@pytest.mark.parametrize("name", ONE_HOT)
def test_f_is_not_called_at_states_that_cannot_occur(name: str) -> None:
    logits = torch.tensor([[0.3, -torch.inf, 0.1], [-torch.inf, 1.0, -0.4]], dtype=torch.float64, requires_grad=True)
    impossible = torch.isinf(logits.detach())

    def f(z: Tensor) -> Tensor:
        assert not impossible[torch.arange(2), z].any()
        return z.double().sum(1)

    surrogate = getattr(functional, name)(logits.expand(500, -1, -1), f).surrogate
    (found,) = torch.autograd.grad(surrogate.mean(), logits)
    assert torch.isfinite(found).all()
    assert (found[impossible] == 0).all()
    assert (found[~impossible] != 0).any()


def spins(z: Tensor) -> Tensor:
    return (2 * z - 1).sum(1) ** 2


def spins_in_place(z: Tensor) -> Tensor:
    return z.mul_(2).sub_(1).sum(1) ** 2


def spins_in_numpy(z: Tensor) -> Tensor:
    values = z.numpy()
    values *= 2
    values -= 1
    return z.sum(1) ** 2


@pytest.mark.parametrize("name", [*CASES, "gumbel_softmax", "gumbel_rao", "minimum_variance", "reinmax"])
def test_f_may_change_z_in_place(name: str) -> None:
    function = CASES[name].function if name in CASES else getattr(functional, name)
    is_differentiated = "rodeo" in name or name not in CASES
    answers = []
    for f in (spins, spins_in_place) if is_differentiated else (spins, spins_in_place, spins_in_numpy):
        logits = torch.linspace(-2, 2, 12).view(4, 3).requires_grad_()
        answer = function(logits, f, generator=torch.Generator().manual_seed(1))
        answers.append((answer.value, *torch.autograd.grad(answer.surrogate.sum(), logits)))
    for answer_in_place in answers[1:]:
        torch.testing.assert_close(answer_in_place, answers[0])


def test_mistakes_with_shapes_and_graphs_get_a_sentence() -> None:
    lr, slope = functional.likelihood_ratio, torch.ones(2, requires_grad=True)
    with pytest.raises(TypeError, match=r"logits are a Bernoulli, expected a tensor; .* give its \.logits"):
        lr(torch.distributions.Bernoulli(logits=torch.zeros(3, 2)), lambda z: z.sum(1))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"f has shape \(5, 3\), expected \(5,\): logits of three axes .* flatten"):
        lr(torch.zeros(5, 3, 2, requires_grad=True), lambda z: z.double())
    for function in (lr, functional.reinmax, functional.gumbel_softmax):
        with pytest.raises(ValueError, match="logits have no gradient and f has one, expected logits that a net"):
            function(torch.zeros(3, 2), lambda z: z @ slope)
        with torch.no_grad():
            assert function(torch.zeros(3, 2), lambda z: z @ slope).value.shape == (3,)


def test_the_surrogate_of_rodeo_trains_its_control_on_the_squared_estimate() -> None:
    control = functional.SteinControl(4, torch.Generator().manual_seed(0)).double()
    for parameter in control.parameters():
        parameter.data += 0.1
    logits, noise = torch.randn(6, 3, dtype=torch.float64, requires_grad=True), torch.rand(2, 6, 3).double()
    weights = torch.randn(3, dtype=torch.float64)

    def estimate() -> Tensor:
        answer = functional.rodeo(logits, lambda z: (z @ weights).exp(), noise, control=control)
        return torch.autograd.grad(answer.surrogate.sum(), logits)[0]

    answer = functional.rodeo(logits, lambda z: (z @ weights).exp(), noise, control=control)
    trained = torch.autograd.grad(answer.surrogate.sum(), [control.alpha, control.last.bias])
    for parameter, gradient in zip([control.alpha, control.last.bias], trained, strict=True):
        parameter.data += 1e-6
        above = estimate().square().sum()
        parameter.data -= 2e-6
        below = estimate().square().sum()
        parameter.data += 1e-6
        torch.testing.assert_close((above - below) / 2e-6, gradient.sum(), rtol=1e-5, atol=1e-7)
    control.eval()
    answer = functional.rodeo(logits, lambda z: (z @ weights).exp(), noise, control=control)
    assert torch.autograd.grad(answer.surrogate.sum(), [control.alpha], allow_unused=True) == (None,)


def test_rodeo_learns_to_vary_less_than_leave_one_out() -> None:
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(1, 8, generator=generator).expand(50, -1).clone().requires_grad_()
    weights, control = torch.randn(8, generator=generator), functional.SteinControl(10, generator)

    def f(z: Tensor) -> Tensor:
        return (z @ weights - 1).square()

    optimiser = torch.optim.Adam(control.parameters(), lr=0.02)
    for _ in range(80):
        optimiser.zero_grad()
        functional.rodeo(logits, f, generator=generator, control=control).surrogate.mean().backward()
        optimiser.step()
    noise = torch.rand(2, 50, 8, generator=generator)
    answers = functional.rodeo(logits, f, noise, control=control), functional.leave_one_out(logits, f, noise)
    ours, plain = (torch.autograd.grad(answer.surrogate.sum(), logits)[0].var(0).sum() for answer in answers)
    assert ours < 0.8 * plain
