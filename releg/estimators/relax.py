"""RELAX: the likelihood ratio with a learned function of relaxed variables as its control variate."""

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


class Relax(Estimator):
    """D elbo / d logits = E[(f - c(h')) (z - mean) + d c(h) / d logits - d c(h') / d logits].

    c = s f(sigmoid(h / temperature)) + net(h, input of the layer); h has the path's noise, h' is drawn given z.
    Grathwohl, Choi, Wu, Roeder & Duvenaud (2018), equation 8 and section 3.3; all of c is trained to lessen the
    variance, here that of the gradient by the logits. With s = 0 and a net that answers 0 it is the plain likelihood
    ratio. Cost: one simulation, and two relaxed ones with derivatives from each layer on. Unbiased.

    Args:
        hidden: tanh units of each layer's net, which answers 0 to begin with.
        temperature: to begin with.
        scale: s, to begin with.
    """

    def __init__(self, hidden: int = 100, temperature: float = 0.5, scale: float = 1.0) -> None:
        super().__init__()
        if hidden < 1 or temperature <= 0:
            raise ValueError(
                f"hidden is {hidden} and temperature {temperature}, expected at least 1 and a positive number; "
                "the defaults are 100 and 0.5"
            )
        self.hidden = hidden
        self.temperature = temperature
        self.scale = scale
        self.nets = nn.ModuleList()
        self.log_temperatures = nn.Parameter(torch.zeros(0))
        self.scales = nn.Parameter(torch.zeros(0))

    def attach(self, model: SigmoidBeliefNet, generator: torch.Generator | None = None) -> None:
        """One net, temperature and scale per layer."""
        start = torch.ones(len(model.layers), dtype=model.mean.dtype, device=model.mean.device)
        self.log_temperatures = nn.Parameter(math.log(self.temperature) * start)
        self.scales = nn.Parameter(self.scale * start)
        inputs = [model.data_size, *model.layers[:-1]]
        sizes = zip(inputs, model.layers, strict=True)
        self.nets = nn.ModuleList(self._net(below + own, generator).to(model.mean) for below, own in sizes)

    def _net(self, width: int, generator: torch.Generator | None) -> nn.Module:
        first, last = nn.Linear(width, self.hidden), nn.Linear(self.hidden, 1)
        nn.init.xavier_uniform_(first.weight, generator=generator)
        for zero in (first.bias, last.weight, last.bias):
            nn.init.zeros_(zero)
        return nn.Sequential(first, nn.Tanh(), last)

    def draw_noise(self, model: SigmoidBeliefNet, x: Tensor, generator: torch.Generator | None = None) -> list[Tensor]:
        """Noise of the path, and of h' given it."""
        return draw_coupled(model, x, generator)

    def evaluations(self, model: SigmoidBeliefNet) -> int:
        """The path, and two relaxations from each layer on."""
        return 1 + 2 * len(model.layers)

    def estimate(self, model: SigmoidBeliefNet, x: Tensor, noise: Sequence[Tensor]) -> Estimate:
        """Control variates layer by layer."""
        simulation = simulate(model, x, noise)
        path, below, inputs = simulation.path, simulation.path.parents(), simulation.path.layer_inputs()

        def control(layer: int, logits: Tensor, h: Tensor) -> Tensor:
            temperature = self.log_temperatures[layer].exp()
            relaxed = torch.sigmoid(h / temperature)
            signal = continued_signal(model, layer, below[layer], logits, relaxed, path.noise, concrete(temperature))
            free: Tensor = self.nets[layer](torch.cat([inputs[layer], h], dim=1))
            return self.scales[layer] * signal + free.squeeze(-1)

        gradients = controlled_gradients(model, simulation, noise, control, self.training)
        return simulation.answer(gradients, self.samples, squared(gradients) if self.training else None)
