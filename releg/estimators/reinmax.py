"""ReinMax: straight-through of second order. Biased."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from releg.estimators.base import Estimate, Estimator
from releg.estimators.parts.slopes import check_reinmax, reinmax_variant_slope, sloped_path
from releg.sbn import SigmoidBeliefNet


class ReinMax(Estimator):
    """The derivative of f along the path, d z / d logits being 2 q (1-q) - p (1-p) / 2, q = (p + z) / 2. BIASED.

    Liu, Dong, Liu, Yu & Gao (2023): Heun's method where straight-through is Euler's, exact where f is quadratic in
    every unit of one layer. Two variants of Wang & Bui (2026), equations 17 and 18: ReinMax-Rao puts the mean slope of
    concrete variables with logit(q), given z, in place of q (1-q); ReinMax-CV adds `control` times that mean less the
    slope of a concrete variable drawn afresh: the expectation moves, since that draw need not round to z. Cost: one
    simulation with derivatives.

    Args:
        temperature: of p in q (sigmoid(logits / temperature)), or of the concrete variables of both variants.
        draws: of concrete variables per unit; 0: neither variant.
        control: 0: ReinMax-Rao, else ReinMax-CV with this factor.
    """

    label = "ReinMax"
    unbiased = False

    def __init__(self, temperature: float = 1.0, draws: int = 0, control: float = 0.0) -> None:
        super().__init__()
        check_reinmax(temperature, draws, control)
        self.temperature = temperature
        self.draws = draws
        self.control = control

    def draw_noise(self, model: SigmoidBeliefNet, x: Tensor, generator: torch.Generator | None = None) -> list[Tensor]:
        """Noise of the path, then of the concrete variables: (N, H) per layer, draw by draw."""
        draws = 1 + self.draws + bool(self.control)
        return [values for _ in range(draws) for values in model.draw_noise(x, generator)]

    def estimate(self, model: SigmoidBeliefNet, x: Tensor, noise: Sequence[Tensor]) -> Estimate:
        """Let autograd differentiate f along the binary path."""
        relaxed = sloped_path(model, x, noise, self._slope)
        return Estimate(elbo=relaxed.f.detach(), surrogate=-relaxed.f, logits=relaxed.logits)

    def _slope(self, logits: Tensor, z: Tensor, noise: Sequence[Tensor]) -> Tensor:
        return reinmax_variant_slope(logits, z, noise, self.temperature, self.control)
