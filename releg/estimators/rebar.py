"""REBAR: the likelihood ratio with a relaxation as its control variate."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from releg.estimators.base import Estimate, Estimator
from releg.relaxation import concrete
from releg.relaxed_control import controlled_gradients, draw_coupled
from releg.sbn import SigmoidBeliefNet
from releg.signals import continued_signal
from releg.simulation import simulate, squared


class Rebar(Estimator):
    """D elbo / d logits = E[(f - s c(h')) (z - mean) + s d c(h) / d logits - s d c(h') / d logits].

    c is f with relaxed z = sigmoid(h / temperature), deeper layers relaxed too; h has the path's noise, h' is drawn
    given z. Tucker, Mnih, Maddison, Lawson & Sohl-Dickstein (2017), equation 4; a scale s and a temperature per layer
    are trained to lessen the variance (section 3.2), here that of the gradient by the logits. Cost: one simulation, and
    two relaxed ones with derivatives from each layer on. Unbiased.

    Args:
        temperature: to begin with.
        scale: to begin with.
    """

    def __init__(self, temperature: float = 0.5, scale: float = 1.0) -> None:
        super().__init__()
        if temperature <= 0:
            raise ValueError(f"temperature is {temperature}, expected a positive number; the default is 0.5")
        self.temperature = temperature
        self.scale = scale
        self.log_temperatures = nn.Parameter(torch.zeros(0))
        self.scales = nn.Parameter(torch.zeros(0))

    def attach(self, model: SigmoidBeliefNet, generator: torch.Generator | None = None) -> None:
        """One temperature and one scale per layer."""
        start = torch.ones(len(model.layers), dtype=model.mean.dtype, device=model.mean.device)
        self.log_temperatures = nn.Parameter(math.log(self.temperature) * start)
        self.scales = nn.Parameter(self.scale * start)

    def draw_noise(self, model: SigmoidBeliefNet, x: Tensor, generator: torch.Generator | None = None) -> list[Tensor]:
        """Noise of the path, and of h' given it."""
        return draw_coupled(model, x, generator)

    def evaluations(self, model: SigmoidBeliefNet) -> int:
        """The path, and two relaxations from each layer on."""
        return 1 + 2 * len(model.layers)

    def estimate(self, model: SigmoidBeliefNet, x: Tensor, noise: Sequence[Tensor]) -> Estimate:
        """Control variates layer by layer."""
        simulation = simulate(model, x, noise)
        path, below = simulation.path, simulation.path.parents()

        def control(layer: int, logits: Tensor, h: Tensor) -> Tensor:
            temperature = self.log_temperatures[layer].exp()
            relaxed = torch.sigmoid(h / temperature)
            signal = continued_signal(model, layer, below[layer], logits, relaxed, path.noise, concrete(temperature))
            return self.scales[layer] * signal

        gradients = controlled_gradients(model, simulation, noise, control, self.training)
        return simulation.answer(gradients, self.samples, squared(gradients) if self.training else None)
