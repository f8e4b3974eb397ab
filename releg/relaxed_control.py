"""The likelihood ratio with a control variate that is a function of relaxed variables: what REBAR and RELAX share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from releg.relaxation import hidden, hidden_given
from releg.sbn import SigmoidBeliefNet
from releg.signals import derivative
from releg.simulation import Simulation

Control = Callable[[int, Tensor, Tensor], Tensor]  # layer, its logits as constants and h, (N, H) each, to c (N,)


def draw_coupled(model: SigmoidBeliefNet, x: Tensor, generator: torch.Generator | None) -> list[Tensor]:
    """Noise of the path, then of h given its z: (N, H) per layer, twice."""
    return [*model.draw_noise(x, generator), *model.draw_noise(x, generator)]


def controlled_gradients(
    model: SigmoidBeliefNet, simulation: Simulation, noise: Sequence[Tensor], control: Control, differentiable: bool
) -> list[Tensor]:
    """(f_l - c(h')) (z - mean) + d c(h) / d logits - d c(h') / d logits, (N, H) per layer.

    Unbiased whatever c is: given what is above and below layer l, E[c(h') (z - mean) + d c(h') / d logits] and
    E[d c(h) / d logits] are both the derivative of E[c(h)].

    Args:
        model: the weights.
        simulation: of the path.
        noise: as drawn by draw_coupled.
        control: c of one layer.
        differentiable: whether the answer may be differentiated by the parameters of c.
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
