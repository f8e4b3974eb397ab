"""An estimator's answer on a small random model, with noise that is drawn once."""

import torch
from torch import Tensor

from releg.estimators.base import Estimate, Estimator
from releg.sbn import SigmoidBeliefNet
from tests.releg.helpers import random_model, random_x


def answer(estimator: Estimator, model: SigmoidBeliefNet, x: Tensor, noise: list[Tensor]) -> Estimate:
    estimator.attach(model)
    return estimator(model, x, noise)


def gradients(estimator: Estimator, model: SigmoidBeliefNet, x: Tensor, noise: list[Tensor]) -> list[Tensor]:
    found = answer(estimator, model, x, noise).logit_grads
    assert found is not None
    return found


def drawn(estimator: Estimator, layers: list[int], rows: int = 50) -> tuple[SigmoidBeliefNet, Tensor, list[Tensor]]:
    model, x = random_model(6, layers, 1.5, seed=4), random_x(rows, 6, seed=4)
    return model, x, estimator.draw_noise(model, x, torch.Generator().manual_seed(4))
