"""One home per formula: estimators of sigmoid belief nets with one layer, and estimators that contain each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from releg import bernoulli, functional
from releg.estimators.arm import Arm
from releg.estimators.arms import Arms
from releg.estimators.base import Estimator
from releg.estimators.bitflip import Bitflip
from releg.estimators.common_random_numbers import CommonRandomNumbers
from releg.estimators.disarm import DisArm
from releg.estimators.gumbel_softmax import GumbelSoftmax
from releg.estimators.leave_one_out import LeaveOneOut
from releg.estimators.likelihood_ratio import LikelihoodRatio
from releg.estimators.local_disarm import LocalDisArm
from releg.estimators.local_expectation import LocalExpectation
from releg.estimators.pruned import Pruned
from releg.estimators.reinmax import ReinMax
from releg.estimators.rodeo import Rodeo
from releg.estimators.straight_through import StraightThrough
from releg.estimators.ugc import Ugc
from releg.functional import Answer
from tests.releg.functional.cases import CONTROL, Rugged
from tests.releg.helpers import random_model, random_x

Call = Callable[[Tensor, Callable[[Tensor], Tensor], Sequence[Tensor]], Answer]  # logits, f, the estimator's noise


def plain(function: Callable[..., Answer], **settings: object) -> Call:
    return lambda logits, f, noise: function(logits, f, noise[0], **settings)


def chosen(function: Callable[..., Answer]) -> Call:
    """Of an estimator that chooses a unit by the last of its noise."""
    return lambda logits, f, noise: function(logits, f, noise[0], choice=noise[-1].squeeze(1))


def several(function: Callable[..., Answer], **settings: object) -> Call:
    """Of an estimator with consecutive rows for the samples of an image."""
    return lambda logits, f, noise: function(
        logits, f, noise[0].unflatten(0, (len(logits), -1)).transpose(0, 1), **settings
    )


def stacked(function: Callable[..., Answer], **settings: object) -> Call:
    """Of an estimator with further noise after that of the path."""
    return lambda logits, f, noise: function(logits, f, torch.stack(list(noise)), **settings)


def rodeo() -> Rodeo:
    estimator = Rodeo(samples=3)
    estimator.controls.append(CONTROL)
    return estimator.eval()


@pytest.mark.parametrize(
    ("call", "estimator"),
    [
        (plain(functional.likelihood_ratio), LikelihoodRatio()),
        (several(functional.leave_one_out, samples=3), LeaveOneOut(samples=3)),
        (several(functional.rodeo, samples=3, control=CONTROL), rodeo()),
        (plain(functional.common_random_numbers), CommonRandomNumbers(engine="dense")),
        (plain(functional.common_random_numbers), LocalExpectation()),
        (chosen(functional.pruned), Pruned()),
        (chosen(functional.bitflip), Bitflip()),
        (chosen(functional.ugc), Ugc()),
        (plain(functional.arm), Arm()),
        (plain(functional.disarm), DisArm()),
        (stacked(functional.arms, samples=3), Arms(3)),
        (several(functional.local_disarm, samples=3), LocalDisArm(samples=3)),
        (plain(functional.straight_through), StraightThrough()),
        (plain(functional.reinmax), ReinMax()),
        (stacked(functional.reinmax, temperature=0.7, draws=2), ReinMax(0.7, 2)),
        (stacked(functional.reinmax, temperature=0.7, draws=2, control=0.4), ReinMax(0.7, 2, 0.4)),
        (plain(functional.gumbel_softmax, temperature=0.7), GumbelSoftmax(temperature=0.7)),
        (stacked(functional.gumbel_rao, temperature=0.7, draws=3), GumbelSoftmax(temperature=0.7, rao=3)),
    ],
)
def test_a_net_with_one_layer_gets_the_gradient_of_its_estimator(call: Call, estimator: Estimator) -> None:
    model, x = random_model(5, [4]), random_x(6, 5)
    noise = estimator.draw_noise(model, x, torch.Generator().manual_seed(1))
    estimate = estimator(model, x, noise)
    logits = model.inference_logits(0, x)
    has_slope = isinstance(estimator, StraightThrough | GumbelSoftmax | ReinMax | LocalDisArm)

    def f(z: Tensor) -> Tensor:
        terms = zip(model.generative_logits([z]), [x, z], strict=True)
        log_p = torch.stack([bernoulli.relaxed_log_prob(a, value).sum(-1) for a, value in terms]).sum(0)
        log_q = bernoulli.relaxed_log_prob(logits if has_slope else logits.detach(), z).sum(-1)
        return log_p - log_q

    answer = call(logits, f, noise)
    inference = list(model.inference[0].parameters())
    ours = torch.autograd.grad(answer.surrogate.sum(), inference, retain_graph=True)
    theirs = torch.autograd.grad(estimate.surrogate.sum(), inference)
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-11)
    if not isinstance(estimator, Arm | DisArm | Arms | Ugc | LocalDisArm):  # these average over others, or are bounds
        torch.testing.assert_close(answer.value, estimate.elbo)


def gradient_of(answer: Answer, logits: Tensor) -> Tensor:
    (found,) = torch.autograd.grad(answer.surrogate.sum(), logits)
    return found


def test_leave_one_out_is_vargrad() -> None:
    """Richter et al. (2020): half the sample variance of log q - log p, with the samples held fixed."""
    logits = torch.randn(10, 4, dtype=torch.float64, requires_grad=True)
    noise, weights = torch.rand(3, 10, 4, dtype=torch.float64), torch.randn(4, dtype=torch.float64)

    def log_q(z: Tensor) -> Tensor:
        return bernoulli.log_prob(logits, z).sum(-1)

    def f(z: Tensor) -> Tensor:
        return torch.sin(z @ weights) - log_q(z).detach()

    z = bernoulli.sample(logits.detach().expand(3, -1, -1), noise)
    half_variance = (log_q(z) - torch.sin(z @ weights)).var(0) / 2
    (theirs,) = torch.autograd.grad(half_variance.sum(), logits)
    torch.testing.assert_close(gradient_of(functional.leave_one_out(logits, f, noise, samples=3), logits), theirs)


def test_disarm_is_u2g() -> None:
    """Yin et al. (2020): max(p, 1 - p) in place of sigmoid(|logits|), and 1[u > 1 - p] as the opposite."""
    logits = torch.randn(30, 4, dtype=torch.float64, requires_grad=True)
    u, f = torch.rand(30, 4, dtype=torch.float64), Rugged()
    f.slope = torch.randn(4, dtype=torch.float64)
    p = torch.sigmoid(logits.detach())
    one, other = (u < p).double(), (u > 1 - p).double()
    u2g = (f(one) - f(other))[:, None] / 2 * torch.maximum(p, 1 - p) * (one - other)
    torch.testing.assert_close(-gradient_of(functional.disarm(logits, f, u), logits), u2g)


def test_common_random_numbers_of_one_layer_are_indecater() -> None:
    """De Smet et al. (2023): for every variable, sum of d q_k f(z with z_i = k) over its states, the others sampled."""
    logits = torch.randn(20, 3, 4, dtype=torch.float64, requires_grad=True)
    noise, f = torch.rand(20, 3, dtype=torch.float64), Rugged()
    z = functional.variables.sample(logits, noise)
    total = torch.zeros(20, dtype=torch.float64)
    for unit in range(3):
        for state in range(4):
            values = z.clone()
            values[:, unit] = state
            total = total + logits.softmax(-1)[:, unit, state] * f(values).detach()
    (theirs,) = torch.autograd.grad(total.sum(), logits)
    torch.testing.assert_close(-gradient_of(functional.common_random_numbers(logits, f, noise), logits), theirs)
