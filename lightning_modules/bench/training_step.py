"""A whole training step, outside any Trainer: what is timed, and whose memory is taken."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from lightning_modules.sbn_module import SBNModule
from releg.estimators.base import Estimator
from releg.seeds import seed_for

Weights = dict[str, Tensor]  # a SigmoidBeliefNet's state


class TrainingStep:
    """A bare loop's step: draw noise, estimate, zero_grad, backward, RMSprop as SBNModule sets it up; loss summed."""

    def __init__(self, module: SBNModule, seed: int) -> None:
        self.module = module
        self.optimizer = module.build_optimizer()
        self.generator = torch.Generator().manual_seed(seed_for(seed, "bench"))
        self.parts: dict[str, float] = {}  # seconds of the last step, by what they were spent on
        self._start = {name: value.clone() for name, value in module.model.state_dict().items()}

    def restore(self) -> None:
        """Go back to the weights at which the step was made."""
        self.module.model.load_state_dict(self._start)

    def __call__(self, x: Tensor) -> None:
        """Train on x (B, data_size) once."""
        marks = [time.perf_counter()]
        noise = self.module.estimator.draw_noise(self.module.model, x, self.generator)
        marks.append(time.perf_counter())
        loss, _ = self.module.loss_of(x, noise)
        marks.append(time.perf_counter())
        self.optimizer.zero_grad()
        loss.backward()
        marks.append(time.perf_counter())
        self.optimizer.step()
        marks.append(time.perf_counter())
        names = ("noise", "estimate", "backward", "rmsprop")
        self.parts = {name: end - start for name, start, end in zip(names, marks, marks[1:], strict=False)}


def module_for(layers: tuple[int, ...], estimator: Estimator, weights: Weights, seed: int) -> SBNModule:
    """A module at the given weights."""
    module = SBNModule(list(layers), estimator, len(weights["mean"]), seed=seed)
    module.model.load_state_dict(weights)
    return module
