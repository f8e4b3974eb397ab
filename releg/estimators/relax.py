"""RELAX: the likelihood ratio with a learned function of relaxed variables as its control variate."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from releg.checks import check_at_least
from releg.estimators.parts.relaxed_control import RelaxedControl
from releg.sbn import SigmoidBeliefNet, Trajectory


class Relax(RelaxedControl):
    """d elbo / d logits = E[(f - c(h')) (z - mean) + d c(h) / d logits - d c(h') / d logits].

    c = s f(sigmoid(h / temperature)) + net(h, input of the layer). h has the path's noise, h' is drawn given z.
    Grathwohl, Choi, Wu, Roeder & Duvenaud (2018), equation 8 and section 3.3; all of c is trained to reduce the
    variance of d elbo / d logits. With s = 0 and a net that returns 0 this is the plain likelihood ratio. Cost: one
    simulation, plus two relaxed ones with derivatives from each layer on. Unbiased.

    Args:
        hidden: tanh units of each layer's net, which initially returns 0.
        temperature: its initial value.
        scale: initial value of s.
    """

    label = "RELAX"

    def __init__(self, hidden: int = 100, temperature: float = 0.5, scale: float = 1.0) -> None:
        super().__init__(temperature, scale)
        check_at_least("hidden", hidden, 1, "the default is 100")
        self.hidden = hidden
        self.nets = nn.ModuleList()

    def attach(self, model: SigmoidBeliefNet, generator: torch.Generator | None = None) -> None:
        """Create one net, temperature and scale per layer."""
        super().attach(model, generator)
        inputs = [model.data_size, *model.layers[:-1]]
        sizes = zip(inputs, model.layers, strict=True)
        self.nets = nn.ModuleList(self._net(below + own, generator).to(model.mean) for below, own in sizes)

    def _net(self, width: int, generator: torch.Generator | None) -> nn.Module:
        first, last = nn.Linear(width, self.hidden), nn.Linear(self.hidden, 1)
        nn.init.xavier_uniform_(first.weight, generator=generator)
        for zero in (first.bias, last.weight, last.bias):
            nn.init.zeros_(zero)
        return nn.Sequential(first, nn.Tanh(), last)

    def control(self, model: SigmoidBeliefNet, path: Trajectory, layer: int, logits: Tensor, h: Tensor) -> Tensor:
        """s f(sigmoid(h / temperature)) + net(h, input of the layer), (N,)."""
        free: Tensor = self.nets[layer](torch.cat([path.layer_inputs()[layer], h], dim=1))
        return self.scales[layer] * self.relaxed_signal(model, path, layer, logits, h) + free.squeeze(-1)
