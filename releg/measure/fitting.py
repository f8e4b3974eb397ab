"""Train what an estimator owns (baselines, control variates) at fixed weights of the model."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from releg.estimators.base import Estimator, check_finite, repeated
from releg.rmsprop import paper_rmsprop
from releg.sbn import SigmoidBeliefNet
from releg.seeds import seed_for

BATCH_SIZE = 100


def attached(estimator: Estimator, model: SigmoidBeliefNet, generator: torch.Generator) -> Estimator:
    """A copy of the estimator, attached to the model. Torch's global random state is restored afterwards."""
    estimator = copy.deepcopy(estimator)
    with torch.random.fork_rng(devices=[]):
        estimator.attach(model, generator)
    return estimator


def fitted(estimator: Estimator, model: SigmoidBeliefNet, images: Tensor, steps: int, seed: int = 0) -> Estimator:
    """A copy of the estimator, attached to the model, with its own parameters trained for some steps.

    Uses the paper's RMSprop, on the summed auxiliary loss of mini-batches of BATCH_SIZE images drawn with
    replacement. The model, the estimator and torch's global random state do not change. An estimator without
    parameters of its own is done after one step.

    Args:
        estimator: only its settings are used; the copy is attached anew.
        model: trained at its weights.
        images: (I, data_size) of 0 and 1, any dtype.
        steps: number of mini-batches.
        seed: for initial weights, batches and noise.
    """
    model = copy.deepcopy(model)
    generator = torch.Generator(model.mean.device).manual_seed(seed_for(seed, "fitted"))
    estimator = attached(estimator, model, generator).train()
    model.requires_grad_(False)  # what it owns learns from its answers, without the model's graph
    parameters = list(estimator.parameters())
    optimizer = paper_rmsprop(parameters) if parameters else None
    before = copy.deepcopy(estimator.state_dict())
    with torch.enable_grad():
        for step in range(steps):
            rows = torch.randint(len(images), (BATCH_SIZE,), generator=generator, device=generator.device)
            x = images[rows.to(images.device)].to(model.mean)
            if step == 0:
                model.check_input(x)  # the rest comes from the same images
            noise = estimator.draw_noise(model, x, generator)
            answer = estimator.estimate(model, repeated(x, estimator.samples), noise)
            check_finite(model, answer.elbo)
            loss = answer.auxiliary_loss
            if loss is not None and optimizer is not None:
                gradients = torch.autograd.grad(loss.sum(), parameters)
                for parameter, gradient in zip(parameters, gradients, strict=True):
                    parameter.grad = gradient
                optimizer.step()
            if step == 0 and all(torch.equal(value, before[key]) for key, value in estimator.state_dict().items()):
                break
    return estimator.eval()


def prepare(
    estimators: Mapping[str, Estimator],
    own: Estimator | None,
    model: SigmoidBeliefNet,
    images: Tensor,
    baseline_steps: int,
    seed: int,
) -> dict[str, Estimator]:
    """Each estimator, ready to measure: the run's own if its settings match, else a copy that was trained first."""
    return {
        name: own
        if own is not None and have_same_settings(own, estimator, model)
        else fitted(estimator, model, images, baseline_steps, seed)
        for name, estimator in estimators.items()
    }


def have_same_settings(own: Estimator, other: Estimator, model: SigmoidBeliefNet) -> bool:
    """Whether two estimators, the first attached to the model, differ at most in what they have learned."""
    return plain_settings(own) == plain_settings(attached(other, model, torch.Generator(model.mean.device)))


def plain_settings(estimator: Estimator) -> list[tuple[str, type[nn.Module], dict[str, object]]]:
    """Classes and plain public attributes of an estimator and all its parts."""
    return [
        (name, type(part), {k: v for k, v in vars(part).items() if _is_plain(v) and k[0] != "_" and k != "training"})
        for name, part in estimator.named_modules()
    ]


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))
