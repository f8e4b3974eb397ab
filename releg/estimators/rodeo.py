"""RODEO: leave-one-out with learned control variates, made by a discrete Stein operator."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from releg.estimators.base import Estimate, Estimator, mean_over_paths
from releg.estimators.parts.simulation import check_samples, simulate, squared
from releg.estimators.parts.stein_control import SteinControl, check_hidden
from releg.sbn import SigmoidBeliefNet


class Rodeo(Estimator):
    """(f_k - mean over j != k of (f_j + alpha (A h_j)(z_j))) (z_k - mean) + beta (A h'_k)(z_k), averaged over k.

    A is a discrete Stein operator: E[(A h)(z)] = 0 for any h; `releg.estimators.parts.stein_control` says what h is.
    Shi, Zhou, Hwang, Titsias & Mackey (2022). Net, alpha and beta, one of each per layer, are trained on the squared
    gradient w.r.t. the logits, by the model's optimiser while the model learns: the authors use Adam at 0.001; RMSprop
    at that rate ends at the same variance. They start from alpha = beta = 0, where it is RLOO, and need a few
    hundred steps to get below Double CV, so do not judge it by a short fit. Deeper layers are held fixed in the slopes
    of f. Cost: K simulations with derivatives, and the net of every layer at all its flips. Unbiased.

    Args:
        samples: K, paths per image.
        hidden: leaky units of each layer's net.
    """

    label = "RODEO"

    def __init__(self, samples: int = 2, hidden: int = 100) -> None:
        super().__init__()
        check_samples(samples, 2, "a path is compared with the others")
        check_hidden(hidden)
        self.samples = samples
        self.hidden = hidden
        self.controls = nn.ModuleList()

    def attach(self, model: SigmoidBeliefNet, generator: torch.Generator | None = None) -> None:
        """Create one net, alpha and beta per layer."""
        self.controls = nn.ModuleList(SteinControl(self.hidden, generator).to(model.mean) for _ in model.layers)

    def estimate(self, model: SigmoidBeliefNet, x: Tensor, noise: Sequence[Tensor]) -> Estimate:
        """Apply both control variates, layer by layer."""
        simulation = simulate(model, x, noise)
        path = simulation.path
        gradients = []
        with torch.set_grad_enabled(self.training and torch.is_grad_enabled()):
            layers = zip(self.controls, simulation.signals, path.logits, path.z, simulation.scores, strict=True)
            for layer, (control, f, logits, z, score) in enumerate(layers):
                slopes = simulation.frozen_slope(model, layer)
                gradients.append(control(f, slopes, logits.detach(), z, score, self.samples))
            # an image's answer is the mean over its paths: its square is what the variance is made of
            means = [mean_over_paths(gradient, self.samples) for gradient in gradients]
            auxiliary = squared(means).repeat_interleave(self.samples) if self.training else None
        return simulation.answer(gradients, self.samples, auxiliary)
