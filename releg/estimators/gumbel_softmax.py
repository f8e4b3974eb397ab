"""Gumbel-softmax, for binary variables the binary concrete distribution. Biased."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from releg import bernoulli
from releg.checks import check_at_least
from releg.estimators.base import Estimate, Estimator
from releg.estimators.parts.relaxation import check_temperature, concrete, relaxed_path
from releg.estimators.parts.slopes import rao_slope, sloped_path
from releg.sbn import SigmoidBeliefNet


class GumbelSoftmax(Estimator):
    """The derivative of f at relaxed z = sigmoid((logits - logit(u)) / temperature), for both nets. BIASED.

    Jang, Gu & Poole (2017); Maddison, Mnih & Teh (2017). f has the Bernoulli log-probabilities, linear in z, as in
    Jang et al., not the density of the relaxed variables. The reported elbo is that of the binary path under the same
    noise. Cost: one relaxed simulation with derivatives, plus the binary one.

    With `rao` draws it is Gumbel-Rao: the binary path forwards, and backwards the mean slope of that many relaxed
    variables drawn given z. Paulus, Maddison & Krause (2021): straight-through Gumbel-softmax, Rao-Blackwellised. Cost:
    one simulation with derivatives.

    Args:
        temperature: a higher one is smoother and more biased.
        rao: draws of relaxed variables given z; 0 is Gumbel-softmax.
    """

    unbiased = False

    def __init__(self, temperature: float = 0.5, rao: int = 0) -> None:
        super().__init__()
        check_temperature(temperature, 0.5)
        check_at_least("rao", rao, 0, "0 is Gumbel-softmax")
        self.temperature = temperature
        self.rao = rao
        self.label = "Gumbel-Rao" if rao else "Gumbel-softmax"

    def draw_noise(self, model: SigmoidBeliefNet, x: Tensor, generator: torch.Generator | None = None) -> list[Tensor]:
        """Noise of the path, then of what is drawn given z: (N, H) per layer, draw by draw."""
        return [values for _ in range(1 + self.rao) for values in model.draw_noise(x, generator)]

    def evaluations(self, model: SigmoidBeliefNet) -> int:
        """The relaxed path, plus the binary one for the elbo. Gumbel-Rao has the binary path alone."""
        return 1 if self.rao else 2

    def estimate(self, model: SigmoidBeliefNet, x: Tensor, noise: Sequence[Tensor]) -> Estimate:
        """Let autograd differentiate the relaxed f."""
        if self.rao:
            return self._rao(model, x, noise)
        relaxed = relaxed_path(model, x, noise, concrete(self.temperature))
        with torch.no_grad():
            path = model.infer(x, noise)
            elbo = model.log_p(x, path.z) - bernoulli.total_log_prob(path.logits, path.z)
        return Estimate(elbo=elbo, surrogate=-relaxed.f, logits=relaxed.logits)

    def _rao(self, model: SigmoidBeliefNet, x: Tensor, noise: Sequence[Tensor]) -> Estimate:
        def slope(logits: Tensor, z: Tensor, further: Sequence[Tensor]) -> Tensor:
            return rao_slope(logits, z, torch.stack(list(further)), self.temperature)

        relaxed = sloped_path(model, x, noise, slope)
        return Estimate(elbo=relaxed.f.detach(), surrogate=-relaxed.f, logits=relaxed.logits)
