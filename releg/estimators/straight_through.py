"""Straight-through: the binary sample in the forward pass, its mean in the backward pass. Biased."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from releg.estimators.base import Estimate, Estimator
from releg.estimators.parts.relaxation import relaxed_path, straight_through
from releg.sbn import SigmoidBeliefNet


class StraightThrough(Estimator):
    """The derivative of f along a path in which d z / d logits is taken to be d mean / d logits. BIASED.

    Bengio, Leonard & Courville (2013), section 4, in the variant that keeps the sigmoid's derivative. Cost: one
    simulation with derivatives.
    """

    label = "Straight-through"
    unbiased = False

    def estimate(self, model: SigmoidBeliefNet, x: Tensor, noise: Sequence[Tensor]) -> Estimate:
        """Let autograd differentiate f."""
        relaxed = relaxed_path(model, x, noise, straight_through)
        return Estimate(elbo=relaxed.f.detach(), surrogate=-relaxed.f, logits=relaxed.logits)
