"""What REBAR and RELAX share: the likelihood ratio with a control variate that is a function of relaxed variables."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from releg.estimators.base import Estimate, Estimator
from releg.estimators.parts.relaxation import check_temperature, concrete, hidden, hidden_given
from releg.estimators.parts.signals import continued_signal, derivative
from releg.estimators.parts.simulation import Simulation, simulate, squared
from releg.sbn import SigmoidBeliefNet, Trajectory
from releg.uncompiled import uncompiled

Control = Callable[[int, Tensor, Tensor], Tensor]  # (layer, its constant logits (N, H), h (N, H)) -> c (N,)


class RelaxedControl(Estimator):
    """(f_l - c(h')) (z - mean) + d c(h) / d logits - d c(h') / d logits, with c trained to reduce the variance.

    h has the path's noise, h' is drawn given z.

    Args:
        temperature: initial value, of the relaxation.
        scale: initial value of s, the factor of the relaxed signal in c.
    """

    def __init__(self, temperature: float, scale: float) -> None:
        super().__init__()
        check_temperature(temperature, 0.5)
        self.temperature = temperature
        self.scale = scale
        self.log_temperatures = nn.Parameter(torch.zeros(0))
        self.scales = nn.Parameter(torch.zeros(0))

    def attach(self, model: SigmoidBeliefNet, generator: torch.Generator | None = None) -> None:
        """Create one temperature and one scale per layer."""
        start = torch.ones(len(model.layers), dtype=model.mean.dtype, device=model.mean.device)
        self.log_temperatures = nn.Parameter(math.log(self.temperature) * start)
        self.scales = nn.Parameter(self.scale * start)

    def draw_noise(self, model: SigmoidBeliefNet, x: Tensor, generator: torch.Generator | None = None) -> list[Tensor]:
        """Noise for the path, then for h' given its z: (N, H) per layer, twice."""
        return [*model.draw_noise(x, generator), *model.draw_noise(x, generator)]

    def evaluations(self, model: SigmoidBeliefNet) -> int:
        """The path, plus two relaxations from each layer on."""
        return 1 + 2 * len(model.layers)

    def estimate(self, model: SigmoidBeliefNet, x: Tensor, noise: Sequence[Tensor]) -> Estimate:
        """Apply the control variate layer by layer."""
        simulation = simulate(model, x, noise)

        def control(layer: int, logits: Tensor, h: Tensor) -> Tensor:
            return self.control(model, simulation.path, layer, logits, h)

        gradients = controlled_gradients(model, simulation, noise, control, self.training)
        return simulation.answer(gradients, self.samples, squared(gradients) if self.training else None)

    @abstractmethod
    def control(self, model: SigmoidBeliefNet, path: Trajectory, layer: int, logits: Tensor, h: Tensor) -> Tensor:
        """c of one layer, (N,). Its logits (N, H) are constants."""

    def relaxed_signal(
        self, model: SigmoidBeliefNet, path: Trajectory, layer: int, logits: Tensor, h: Tensor
    ) -> Tensor:
        """f_l at relaxed z = sigmoid(h / temperature), (N,), with deeper layers relaxed too."""
        temperature = self.log_temperatures[layer].exp()
        relaxed, below = torch.sigmoid(h / temperature), path.parents()[layer]
        return continued_signal(model, layer, below, logits, relaxed, path.noise, concrete(temperature))


@uncompiled  # a derivative of a derivative
def controlled_gradients(
    model: SigmoidBeliefNet, simulation: Simulation, noise: Sequence[Tensor], control: Control, differentiable: bool
) -> list[Tensor]:
    """(f_l - c(h')) (z - mean) + d c(h) / d logits - d c(h') / d logits, (N, H) per layer.

    Unbiased for any c: given the other layers, E[c(h') (z - mean) + d c(h') / d logits] and E[d c(h) / d logits] are
    both the derivative of E[c(h)].

    Args:
        model: the weights.
        simulation: the path and its signals.
        noise: for the path, then for h' given its z.
        control: c of one layer.
        differentiable: whether the result can be differentiated w.r.t. the parameters of c.
    """
    depth, path, gradients = len(model.layers), simulation.path, []
    for layer, (signal, score) in enumerate(zip(simulation.signals, simulation.scores, strict=True)):
        constant = path.logits[layer].detach()
        with torch.enable_grad():
            logits = constant.clone().requires_grad_()
            free = control(layer, constant, hidden(logits, path.noise[layer]))
            coupled = control(layer, constant, hidden_given(logits, path.z[layer], noise[depth + layer]))
            by_logits = derivative(free - coupled, logits, create_graph=differentiable)
        gradients.append((signal - coupled)[:, None] * score + by_logits)
    return gradients
