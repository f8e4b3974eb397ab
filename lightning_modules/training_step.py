"""A whole training step without a Trainer, for the benchmark and the grid's time estimate."""

from __future__ import annotations

import torch
from torch import Tensor

from lightning_modules.sbn_module import SBNModule
from releg.estimators.base import Estimator
from releg.seeds import seed_for

Weights = dict[str, Tensor]  # a SigmoidBeliefNet's state


class TrainingStep:
    """One step of a bare loop: draw noise, compute the loss, zero_grad, backward, step of the module's optimiser."""

    def __init__(self, module: SBNModule, seed: int) -> None:
        self.module = module
        self.optimizer = module.build_optimizer()
        self.generator = torch.Generator(module.device).manual_seed(seed_for(seed, "bench"))
        self._start = {name: value.clone() for name, value in module.model.state_dict().items()}

    def restore(self) -> None:
        """Restore the weights that the step was built with."""
        self.module.model.load_state_dict(self._start)

    def __call__(self, x: Tensor) -> None:
        """Train on x (B, data_size) once."""
        noise = self.module.estimator.draw_noise(self.module.model, x, self.generator)
        loss, _ = self.module.loss_of(x, noise)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def module_for(
    layers: tuple[int, ...], estimator: Estimator, weights: Weights, seed: int, device: str = "cpu"
) -> SBNModule:
    """A module at the given weights."""
    module = SBNModule(list(layers), estimator, len(weights["mean"]), seed=seed)
    module.model.load_state_dict(weights)
    return module.to(device)
