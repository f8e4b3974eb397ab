"""The loss for Pyro: unbiased against enumeration and TraceEnum_ELBO, and a sentence where it could not be."""

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import SVI, TraceEnum_ELBO, config_enumerate
from pyro.optim import Adam  # type: ignore[attr-defined]
from torch import Tensor, nn

from releg.pyro import ELBO
from tests.releg.pyro.programs import ROWS, Mixed

Program = Callable[..., Any]
COPIES = 300  # of ROWS, so that few steps give a precise mean


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    pyro.set_rng_seed(0)
    pyro.clear_param_store()
    yield
    torch.set_default_dtype(before)


def gradient(loss: Any, model: Program, guide: Program, parameters: list[Tensor], *x: Any) -> Tensor:
    for value in parameters:
        value.grad = None
    loss.loss_and_grads(model, guide, *x)
    return torch.cat([torch.zeros(1) if value.grad is None else value.grad.flatten() for value in parameters])


# --- unbiased

CASES: list[tuple[str, dict[str, str], dict[str, Any], int]] = [
    ("common_random_numbers", {}, {}, 60),
    ("common_random_numbers", {}, {"flips": 1, "flips_at_once": 2}, 60),
    ("leave_one_out", {}, {"samples": 3}, 100),
    ("disarm", {}, {"num_particles": 2}, 60),
    ("likelihood_ratio", {"a": "ugc", "k": "bitflip", "b": "arms"}, {}, 100),
]


@pytest.mark.parametrize(("estimator", "by_site", "options", "steps"), CASES)
def test_the_gradient_is_unbiased(estimator: str, by_site: dict[str, str], options: dict[str, Any], steps: int) -> None:
    mixed = Mixed(by_site)
    parameters = list(mixed.parameters.values())
    exact = -torch.cat([g.flatten() for g in torch.autograd.grad(mixed.bound(COPIES), parameters)])
    x, loss = torch.tensor(ROWS).repeat(COPIES), ELBO(estimator, **options)
    found = torch.stack([gradient(loss, mixed.model, mixed.guide, parameters, x, 2 * COPIES) for _ in range(steps)])
    error = found.std(0) / steps**0.5
    assert ((found.mean(0) - exact) / error).abs().max() < 4.5
    power = (0.1 * exact / error).abs().split([value.numel() for value in parameters])
    assert min(each.max() for each in power) > 4.5, "a wrong factor of 1.1 at any site would be seen"


@pytest.mark.parametrize("estimator", ["common_random_numbers", "leave_one_out", "disarm"])
def test_flips_one_by_one_give_the_same_gradient_as_side_by_side(estimator: str) -> None:
    found = []
    for options in ({}, {"max_plate_nesting": 4, "flips_at_once": 3}, {"vectorize": False}):
        pyro.set_rng_seed(3)
        mixed = Mixed({"k": "pruned"})
        parameters, loss = list(mixed.parameters.values()), ELBO(estimator, **options)
        x = torch.tensor(ROWS).repeat(4)
        found.append(torch.stack([gradient(loss, mixed.model, mixed.guide, parameters, x, 6) for _ in range(2)]))
    assert torch.allclose(found[0], found[1], rtol=1e-10)
    assert torch.allclose(found[0], found[2], rtol=1e-10)


def test_a_plate_without_a_size_has_the_rows_of_its_sites() -> None:
    x, logits, found = torch.randn(5), torch.randn(5, requires_grad=True), []
    for size in (5, None):

        def guide(x: Tensor, size: int | None = size) -> None:
            with pyro.plate("data", size):
                pyro.sample("z", dist.Bernoulli(logits=logits))

        def model(x: Tensor, size: int | None = size) -> None:
            with pyro.plate("data", size):
                z = pyro.sample("z", dist.Bernoulli(0.5 * torch.ones(5)))
                pyro.sample("x", dist.Normal(z, 1), obs=x)

        pyro.set_rng_seed(0)
        found.append(gradient(ELBO("leave_one_out"), model, guide, [logits], x))
    assert torch.equal(*found)
    assert found[0].abs().sum() > 0


def assert_unbiased(loss: ELBO, program: tuple[Program, Program], exact: Tensor, parameters: list[Tensor]) -> None:
    """On programs of one row, whose observation is 1."""
    x = torch.tensor(1.0)
    found = torch.stack([gradient(loss, *program, parameters, x) for _ in range(400)])
    error = found.std(0) / 20 + 1e-9
    assert ((found.mean(0) - exact) / error).abs().max() < 4.5
    assert (0.2 * exact / error).abs().max() > 4.5


def test_an_observed_site_outside_of_the_plates_makes_one_row() -> None:
    logits = torch.randn(3, 3, requires_grad=True)

    def guide(x: Tensor) -> None:
        with pyro.plate("three", 3):
            pyro.sample("k", dist.OneHotCategorical(logits=logits))

    def model(x: Tensor) -> None:
        with pyro.plate("three", 3):
            k = pyro.sample("k", dist.OneHotCategorical(torch.ones(3) / 3))
        counted = (k * torch.arange(3.0)).sum(-1)
        pyro.sample("x", dist.Normal(counted.sum(-1, keepdim=True) * counted[..., :1], 1), obs=x)

    bound = torch.zeros(())
    for states in itertools.product(range(3), repeat=3):
        log_q = logits.log_softmax(-1)[range(3), states].sum()
        f = -3 * math.log(3) + dist.Normal(sum(states) * states[0], 1).log_prob(torch.tensor(1.0)) - log_q
        bound = bound + log_q.exp() * f
    (exact,) = torch.autograd.grad(-bound, logits)
    assert_unbiased(ELBO("common_random_numbers"), (model, guide), exact.flatten(), [logits])


def test_a_flip_may_lead_to_other_sites() -> None:
    logits = torch.randn(3, requires_grad=True)

    def guide(x: Tensor) -> None:
        if pyro.sample("first", dist.Bernoulli(logits=logits[0])):
            pyro.sample("second", dist.Bernoulli(logits=logits[1]))
        else:
            pyro.sample("third", dist.Categorical(logits=torch.stack([logits[2], logits[2] * 0])))

    def model(x: Tensor) -> None:
        if pyro.sample("first", dist.Bernoulli(0.3)):
            loc = pyro.sample("second", dist.Bernoulli(0.6)) * 3.0
        else:
            loc = pyro.sample("third", dist.Categorical(torch.ones(2) / 2)) - 1.0
        pyro.sample("x", dist.Normal(loc, 1), obs=x)

    enumerated = config_enumerate(guide, "sequential")
    exact_loss = TraceEnum_ELBO(max_plate_nesting=0).differentiable_loss(model, enumerated, torch.tensor(1.0))
    (exact,) = torch.autograd.grad(exact_loss, logits)
    assert_unbiased(ELBO("common_random_numbers", vectorize=False), (model, guide), exact, [logits])


@pytest.mark.parametrize("estimator", ["common_random_numbers", "leave_one_out", "disarm"])
@pytest.mark.parametrize("form", ["probs", "logits"])
def test_states_that_cannot_occur_are_skipped_also_where_f_is_infinite(estimator: str, form: str) -> None:
    p = torch.tensor([0.4, 0.7], requires_grad=True)
    may = torch.tensor([0.0, 1.0])
    settings: Any = {"releg": {"estimator": estimator}}

    def guide(x: Tensor) -> None:
        with pyro.plate("two", 2):
            pyro.sample("z", dist.Bernoulli(p * may), infer=settings)
            probs = torch.stack([p, 1 - p, torch.zeros(2)], -1)
            logits = torch.stack([p.log(), (1 - p).log(), torch.full((2,), -torch.inf)], -1)
            pyro.sample("k", dist.Categorical(probs) if form == "probs" else dist.Categorical(logits=logits))

    def model(x: Tensor) -> None:
        with pyro.plate("two", 2):
            z = pyro.sample("z", dist.Bernoulli(0.6 * may))
            k = pyro.sample("k", dist.Categorical(logits=torch.tensor([0.5, 0.2, -torch.inf])))
            pyro.sample("x", dist.Normal(z + k, 1), obs=x)

    loss = ELBO("common_random_numbers")
    found = torch.stack([gradient(loss, model, guide, [p], torch.tensor([0.3, 1.5])) for _ in range(100)])
    assert torch.isfinite(found).all()

    def bound(p: Tensor) -> Tensor:
        x, total = torch.tensor([0.3, 1.5]), torch.zeros(())
        z_prior, k_prior = torch.tensor(0.6), torch.tensor([0.5, 0.2]).softmax(0)
        for row in range(2):
            for z in range(int(may[row]) + 1):
                for k in range(2):
                    q_z = 1.0 if row == 0 else p[row] if z else 1 - p[row]
                    q_k = p[row] if k == 0 else 1 - p[row]
                    p_z = 1.0 if row == 0 else z_prior if z else 1 - z_prior
                    f = torch.as_tensor(p_z).log() + k_prior[k].log() - (x[row] - z - k) ** 2 / 2
                    total = total + q_z * q_k * (f - torch.as_tensor(q_z).log() - q_k.log())
        return total

    (exact,) = torch.autograd.grad(-bound(p), p)
    error = found.std(0) / 10 + 1e-9
    assert ((found.mean(0) - exact) / error).abs().max() < 4.5


def test_a_continuous_site_that_is_no_normal_may_depend_on_a_discrete_one() -> None:
    logit = torch.tensor([0.4], requires_grad=True)
    rate = torch.tensor([0.3, 0.9]).log().requires_grad_()

    def guide(x: Tensor) -> None:
        with pyro.plate("data", len(x)):
            z = pyro.sample("z", dist.Bernoulli(logits=logit))
            pyro.sample("w", dist.Gamma(2.0, (rate[0] + (rate[1] - rate[0]) * z).exp()))

    def model(x: Tensor) -> None:
        with pyro.plate("data", len(x)):
            z = pyro.sample("z", dist.Bernoulli(0.3))
            pyro.sample("w", dist.Gamma(3.0, 1.0 + z))

    q, rates = torch.sigmoid(logit), rate.exp()
    of_z = [_gamma_bound(rates[0], 1.0) + torch.log(0.7 / (1 - q)), _gamma_bound(rates[1], 2.0) + torch.log(0.3 / q)]
    bound = 500 * ((1 - q) * of_z[0] + q * of_z[1])
    exact = -torch.cat(torch.autograd.grad(bound.sum(), [logit, rate]))
    for vectorize in (True, False):
        loss = ELBO("common_random_numbers", vectorize=vectorize)
        found = torch.stack([gradient(loss, model, guide, [logit, rate], torch.zeros(500)) for _ in range(100)])
        error = found.std(0) / 10
        assert ((found.mean(0) - exact) / error).abs().max() < 4.5
        assert (0.2 * exact / error).abs().min() > 4.5


def _gamma_bound(rate: Tensor, prior_rate: float) -> Tensor:
    """E log Gamma(w; 3, prior_rate) - log Gamma(w; 2, rate) for w from the latter, up to a constant.

    log w has the mean digamma(2) - log rate, and w the mean 2 / rate.
    """
    log_w = torch.digamma(torch.tensor(2.0)) - rate.log()
    log_p = (
        3 * torch.log(torch.tensor(prior_rate)) - torch.lgamma(torch.tensor(3.0)) + 2 * log_w - prior_rate * 2 / rate
    )
    return log_p - (2 * rate.log() + log_w - 2)


# --- as one uses it


def mixture(x: Tensor) -> None:
    with pyro.plate("data", len(x)):
        z = pyro.sample("z", dist.Bernoulli(0.5))
        pyro.sample("x", dist.Normal(2 * z, 0.5), obs=x)


def guide_of_mixture(x: Tensor) -> None:
    logits = pyro.param("logits", lambda: torch.zeros(len(x)))
    with pyro.plate("data", len(x)):
        pyro.sample("z", dist.Bernoulli(logits=logits))


def test_svi_trains_with_it() -> None:
    x = torch.tensor([0.0, 2.0, 1.9, -0.3])
    svi = SVI(mixture, guide_of_mixture, Adam({"lr": 0.2}), loss=ELBO())
    losses = [svi.step(x) for _ in range(100)]
    assert (pyro.param("logits") > 0).tolist() == [False, True, True, False]
    assert svi.evaluate_loss(x) == pytest.approx(losses[-1], abs=0.5)


def test_random_numbers_of_the_program_itself_are_shared_if_flips_run_one_by_one() -> None:
    def with_dropout(x: Tensor) -> None:
        with pyro.plate("data", len(x)):
            z = pyro.sample("z", dist.Bernoulli(0.5))
            pyro.sample("x", dist.Normal(nn.functional.dropout(2 * z), 0.5), obs=x)

    gradient(ELBO(vectorize=False), with_dropout, guide_in_one_plate, [half], torch.ones(50))
    with pytest.raises(ValueError, match="changes f also in rows in which nothing was changed"):
        gradient(ELBO(), with_dropout, guide_in_one_plate, [half], torch.ones(50))


# --- what it cannot handle

half = torch.tensor(0.0, requires_grad=True)


def no_broadcast(x: Tensor) -> None:
    with pyro.plate("data", len(x)):
        z = pyro.sample("z", dist.Bernoulli(0.5))
        pyro.sample("x", dist.Normal(torch.cat([z, z]).view(2, len(x)).sum(0), 1), obs=x)


def mixes_flips(x: Tensor) -> None:
    with pyro.plate("data", len(x)):
        z = pyro.sample("z", dist.Bernoulli(0.5))
        pyro.sample("x", dist.Normal(z - z.mean(0), 1), obs=x)


def mixes_rows(x: Tensor) -> None:
    with pyro.plate("data", len(x)):
        z = pyro.sample("z", dist.Bernoulli(0.5))
        pyro.sample("x", dist.Normal(z - z.mean(-1, keepdim=True), 1), obs=x)


def guide_in_one_plate(x: Tensor) -> None:
    with pyro.plate("data", len(x)):
        pyro.sample("z", dist.Bernoulli(logits=half.expand(len(x))))


def guide_with_poisson(x: Tensor) -> None:
    with pyro.plate("data", len(x)):
        pyro.sample("z", dist.Poisson(half.exp().expand(len(x))))


def changes_in_place(x: Tensor) -> None:
    with pyro.plate("data", len(x)):
        z = pyro.sample("z", dist.Bernoulli(0.5))
        z[..., 0] = 1
        pyro.sample("x", dist.Normal(z, 1), obs=x)


def model_with_poisson(x: Tensor) -> None:
    with pyro.plate("data", len(x)):
        z = pyro.sample("z", dist.Poisson(1.0))
        pyro.sample("x", dist.Normal(z, 1), obs=x)


def model_with_another_latent(x: Tensor) -> None:
    mixture(x)
    pyro.sample("extra", dist.Normal(0, 1))


def guide_with(**settings: Any) -> Program:
    infer: Any = {"releg": settings}

    def guide(x: Tensor) -> None:
        with pyro.plate("data", len(x)):
            pyro.sample("z", dist.Bernoulli(logits=half.expand(len(x))), infer=infer)

    return guide


@pytest.mark.parametrize(
    ("model", "guide", "sentence"),
    [
        (no_broadcast, guide_in_one_plate, "set vectorize=False to run flips one by one"),
        (mixes_flips, guide_in_one_plate, "if it mixes rows of a leftmost axis"),
        (mixes_rows, guide_in_one_plate, "if rows of a plate depend on each other"),
        (changes_in_place, guide_in_one_plate, "the program changes the value of site 'z' in place, expected one that"),
        (model_with_poisson, guide_with_poisson, "site 'z' of the guide is a Poisson, expected"),
        (model_with_another_latent, guide_in_one_plate, "site 'extra' of the model is neither observed nor"),
        (mixture, guide_with(estimator="reinmax"), "site 'z' has the estimator 'reinmax', expected one of common_"),
        (mixture, guide_with(flip=3), r"site 'z' has the settings \['flip'\], expected some of"),
        (mixture, guide_with(estimator="disarm", flips=3), "site 'z' has flips=3, which disarm does not take"),
        (mixture, pyro.infer.autoguide.AutoNormalMessenger(mixture), "the guide is a AutoNormalMessenger, expected"),
    ],
)
@pytest.mark.filterwarnings("ignore")  # Pyro's own, of latents that the guide lacks
def test_what_it_cannot_handle_gets_a_sentence(model: Program, guide: Program, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        gradient(ELBO("common_random_numbers"), model, guide, [half], torch.randn(51))


def test_settings_of_the_loss_are_checked() -> None:
    with pytest.raises(ValueError, match="the loss has the estimator 'rodeo', expected one of"):
        ELBO("rodeo")
    with pytest.raises(ValueError, match="the loss has samples=3, which disarm does not take"):
        ELBO("disarm", samples=3)
