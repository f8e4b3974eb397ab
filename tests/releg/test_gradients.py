"""Gradients in closed form are autograd's."""

import copy
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from releg.estimators.base import Estimate, Estimator
from releg.estimators.leave_one_out import LeaveOneOut
from releg.gradients import Twin, _parameters, loss_in_closed_form
from releg.sbn import SigmoidBeliefNet
from tests.releg.estimators.cases import CASES
from tests.releg.helpers import random_model, random_x

IN_CLOSED_FORM = [name for name, case in CASES.items() if case.make().closed_form]


def problem(name: str, dtype: torch.dtype) -> tuple[SigmoidBeliefNet, Estimator, Tensor, list[Tensor]]:
    model, x = random_model(9, [7, 4, 5], dtype=dtype), random_x(6, 9, dtype=dtype)
    with torch.no_grad():
        model.mean.uniform_(0.1, 0.9, generator=torch.Generator().manual_seed(3))
    estimator = CASES[name].make()
    estimator.attach(model, torch.Generator().manual_seed(1))
    return model, estimator, x, estimator.draw_noise(model, x, torch.Generator().manual_seed(2))


def by_autograd(
    model: SigmoidBeliefNet, estimator: Estimator, x: Tensor, noise: Sequence[Tensor], scale: float
) -> dict[str, Tensor]:
    answer = estimator(model, x, noise)
    per_image = answer.surrogate if answer.auxiliary_loss is None else answer.surrogate + answer.auxiliary_loss
    (scale * per_image.sum()).backward()
    return gradients_of(model, estimator)


def gradients_of(model: SigmoidBeliefNet, estimator: Estimator) -> dict[str, Tensor]:
    named = [*model.named_parameters(), *estimator.named_parameters()]
    return {name: p.grad for name, p in named if p.grad is not None}


@pytest.mark.parametrize("name", IN_CLOSED_FORM)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-4)])
def test_the_closed_form_is_what_autograd_computes(name: str, dtype: torch.dtype, tolerance: float) -> None:
    model, estimator, x, noise = problem(name, dtype)
    expected = by_autograd(copy.deepcopy(model), copied := copy.deepcopy(estimator), x, noise, scale=1.5)
    answer, total = loss_in_closed_form(estimator, model, Twin(), x, noise)
    auxiliary = 0 if answer.auxiliary_loss is None else answer.auxiliary_loss.sum()
    (1.5 * (total + auxiliary)).backward()
    found = gradients_of(model, estimator)
    assert found.keys() == expected.keys()
    for key, gradient in expected.items():
        torch.testing.assert_close(found[key], gradient, rtol=tolerance, atol=tolerance * gradient.abs().max().item())
    for key, state in copied.state_dict().items():  # running averages took the batch in once
        torch.testing.assert_close(estimator.state_dict()[key], state)


@pytest.mark.parametrize("name", CASES)
def test_an_estimator_has_the_closed_form_iff_its_answer_has_all_parts(name: str) -> None:
    model, estimator, x, noise = problem(name, torch.float64)
    answer = estimator(model, x, noise)
    parts = (answer.logit_grads, answer.path, answer.generative_grads)
    assert estimator.closed_form == all(part is not None for part in parts)


@pytest.mark.parametrize("name", IN_CLOSED_FORM)
def test_no_graph_of_the_model_is_built(name: str) -> None:
    model, estimator, x, noise = problem(name, torch.float32)
    answer, total = loss_in_closed_form(estimator, model, Twin(), x, noise)
    assert not answer.surrogate.requires_grad
    assert not any(a.requires_grad for a in answer.logits)
    assert total.requires_grad


def test_gradients_add_up_and_frozen_parameters_get_none() -> None:
    model, estimator, x, noise = problem("crn", torch.float64)
    model.generative[1].weight.requires_grad_(False)
    twin = Twin()
    for _ in range(2):
        loss_in_closed_form(estimator, model, twin, x, noise)[1].backward()
    twice = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    loss_in_closed_form(estimator, model, twin, x, noise)[1].backward()
    assert "generative.1.weight" not in twice
    assert len(twice) == len(list(model.parameters())) - 1
    for name, parameter in model.named_parameters():
        if name in twice:
            torch.testing.assert_close(twice[name], 2 * parameter.grad)  # type: ignore[operator]


def test_the_twin_follows_the_model() -> None:
    model, estimator, x, noise = problem("rloo", torch.float32)
    twin, parameters = Twin(), _parameters(model)
    first = twin.of(model, parameters)
    with torch.no_grad():
        model.prior_logits.add_(1)
    assert twin.of(model, parameters) is first
    assert torch.equal(first.prior_logits, model.prior_logits)
    wide = model.double()
    loss_in_closed_form(estimator, wide, twin, x.double(), [u.double() for u in noise])[1].backward()
    assert wide.prior_logits.grad is not None
    assert wide.prior_logits.grad.dtype == torch.float64


class Halved(LeaveOneOut):
    """A reader's own: another surrogate than that of the class it builds upon."""

    def estimate(self, model: SigmoidBeliefNet, x: Tensor, noise: Sequence[Tensor]) -> Estimate:
        answer = super().estimate(model, x, noise)
        return Estimate(answer.elbo, answer.surrogate / 2, answer.logits)


class Boastful(Halved):
    closed_form = True


def test_an_estimate_of_ones_own_is_left_to_autograd_unless_it_says_otherwise() -> None:
    assert LeaveOneOut.closed_form
    assert not Halved.closed_form
    model, x = random_model(5, [3]), random_x(4, 5)
    estimator = Boastful()
    with pytest.raises(ValueError, match="Boastful has closed_form = True, but its answer lacks logit_grads, path"):
        loss_in_closed_form(estimator, model, Twin(), x, estimator.draw_noise(model, x))
