"""REBAR: the likelihood ratio with a relaxation as its control variate."""

from __future__ import annotations

from torch import Tensor

from releg.estimators.parts.relaxed_control import RelaxedControl
from releg.sbn import SigmoidBeliefNet, Trajectory


class Rebar(RelaxedControl):
    """d elbo / d logits = E[(f - s c(h')) (z - mean) + s d c(h) / d logits - s d c(h') / d logits].

    c is f with relaxed z = sigmoid(h / temperature), deeper layers relaxed too. h has the path's noise, h' is drawn
    given z. Tucker, Mnih, Maddison, Lawson & Sohl-Dickstein (2017), equation 4. A scale s and a temperature per layer
    are trained to reduce the variance (section 3.2) of d elbo / d logits. Cost: one simulation, plus two relaxed ones
    with derivatives from each layer on. Unbiased.

    Args:
        temperature: its initial value.
        scale: initial value of s.
    """

    label = "REBAR"

    def __init__(self, temperature: float = 0.5, scale: float = 1.0) -> None:
        super().__init__(temperature, scale)

    def control(self, model: SigmoidBeliefNet, path: Trajectory, layer: int, logits: Tensor, h: Tensor) -> Tensor:
        """s c(h), (N,)."""
        return self.scales[layer] * self.relaxed_signal(model, path, layer, logits, h)
