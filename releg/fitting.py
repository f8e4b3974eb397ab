"""Training what an estimator owns (baselines, control variates) while the model stands still."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from releg.estimators.base import Estimator
from releg.sbn import SigmoidBeliefNet
from releg.seeds import seed_for

BATCH_SIZE = 100
LEARNING_RATE = 0.01  # at most; it falls linearly to zero


def fitted(estimator: Estimator, model: SigmoidBeliefNet, images: Tensor, steps: int, seed: int = 0) -> Estimator:
    """A copy of the estimator, attached to the model, whose own parts were trained for some steps at its weights.

    Adam on the auxiliary loss, mini-batches of BATCH_SIZE images drawn with replacement. The model, the estimator and
    torch's global random state stay as they are; an estimator that owns nothing to train is done after one step.

    Args:
        estimator: with settings; what it may have been attached to before is forgotten.
        model: the weights at which to train.
        images: (I, data_size) of 0 and 1, any dtype.
        steps: mini-batches.
        seed: of initial weights, batches and noise.
    """
    model, estimator = copy.deepcopy(model), copy.deepcopy(estimator)
    generator = torch.Generator(model.mean.device).manual_seed(seed_for(seed, "fitted"))
    estimator.attach(model, generator)
    estimator.train()
    parameters = list(estimator.parameters())
    optimizer = torch.optim.Adam([*parameters, torch.nn.Parameter(torch.zeros(()))], lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, max(1, steps))
    before = copy.deepcopy(estimator.state_dict())
    with torch.enable_grad():
        for step in range(steps):
            rows = torch.randint(len(images), (BATCH_SIZE,), generator=generator, device=generator.device)
            x = images[rows.to(images.device)].to(model.mean)
            loss = estimator(model, x, estimator.draw_noise(model, x, generator)).auxiliary_loss
            if loss is not None and parameters:
                for parameter, gradient in zip(parameters, torch.autograd.grad(loss.mean(), parameters), strict=True):
                    parameter.grad = gradient
                optimizer.step()
                schedule.step()
            if step == 0 and all(torch.equal(value, before[key]) for key, value in estimator.state_dict().items()):
                break
    return estimator.eval()
