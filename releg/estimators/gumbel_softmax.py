"""Gumbel-softmax, for binary variables the binary concrete distribution. Biased."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from releg import bernoulli
from releg.estimators.base import Estimate, Estimator
from releg.estimators.parts.relaxation import concrete, relaxed_path
from releg.sbn import SigmoidBeliefNet


class GumbelSoftmax(Estimator):
    """The derivative of f at relaxed z = sigmoid((logits - logit(u)) / temperature), for both nets. BIASED.

    Jang, Gu & Poole (2017); Maddison, Mnih & Teh (2017). f has the Bernoulli log-probabilities, linear in z, as in
    Jang et al., not the density of the relaxed variables. The reported elbo is that of the binary path under the same
    noise. Cost: one relaxed simulation with derivatives, plus the binary one.

    Args:
        temperature: a higher one is smoother and more biased.
    """

    unbiased = False

    def __init__(self, temperature: float = 0.5) -> None:
        super().__init__()
        if temperature <= 0:
            raise ValueError(f"temperature is {temperature}, expected a positive number; the default is 0.5")
        self.temperature = temperature

    def evaluations(self, model: SigmoidBeliefNet) -> int:
        """The relaxed path, plus the binary one for the elbo."""
        return 2

    def estimate(self, model: SigmoidBeliefNet, x: Tensor, noise: Sequence[Tensor]) -> Estimate:
        """Let autograd differentiate the relaxed f."""
        relaxed = relaxed_path(model, x, noise, concrete(self.temperature))
        with torch.no_grad():
            path = model.infer(x, noise)
            elbo = model.log_p(x, path.z) - bernoulli.total_log_prob(path.logits, path.z)
        return Estimate(elbo=elbo, surrogate=-relaxed.f, logits=relaxed.logits)
