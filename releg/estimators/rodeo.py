"""RODEO: leave-one-out with learned control variates, made by a discrete Stein operator."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from releg.estimators.base import Estimate, Estimator
from releg.estimators.parts.others import frozen_slope, mean_of_others
from releg.estimators.parts.simulation import Simulation, check_samples, simulate, squared
from releg.estimators.parts.stein import flipped_taylor, stein, stein_of_score
from releg.sbn import SigmoidBeliefNet


class Rodeo(Estimator):
    """(f_k - mean over j != k of (f_j + alpha (A h_j)(z_j))) (z_k - mean) + beta (A h'_k)(z_k), averaged over k.

    A is a discrete Stein operator: E[(A h)(z)] = 0 for any h. h_k(z) and h'_k(z) = h''_k(z) (z - mean) come from a net
    on two numbers, the mean of the other paths' f and the mean of their Taylor terms g_j (z - z_j), g_j = d f / d z at
    path j: what is known of f without evaluating it. Shi, Zhou, Hwang, Titsias & Mackey (2022). Net, alpha
    and beta, one of each per layer, are trained to lessen the variance of the gradient by the logits. With
    alpha = beta = 0, where they start, it is RLOO. Deeper layers are held fixed in g. Cost: K simulations with
    derivatives, and H evaluations of the net per layer of H units. Unbiased.

    Args:
        samples: K, paths per image.
        hidden: leaky units of each layer's net.
    """

    closed_form = True

    def __init__(self, samples: int = 2, hidden: int = 100) -> None:
        super().__init__()
        check_samples(samples, 2, "a path is compared with the others")
        if hidden < 1:
            raise ValueError(f"hidden is {hidden}, expected at least 1; the default is 100")
        self.samples = samples
        self.hidden = hidden
        self.alpha = nn.Parameter(torch.zeros(0))
        self.beta = nn.Parameter(torch.zeros(0))
        self.nets = nn.ModuleList()

    def attach(self, model: SigmoidBeliefNet, generator: torch.Generator | None = None) -> None:
        """One net, alpha and beta per layer."""
        zeros = torch.zeros(len(model.layers), dtype=model.mean.dtype, device=model.mean.device)
        self.alpha, self.beta = nn.Parameter(zeros.clone()), nn.Parameter(zeros.clone())
        self.nets = nn.ModuleList(ControlNet(self.hidden, generator).to(model.mean) for _ in model.layers)

    def estimate(self, model: SigmoidBeliefNet, x: Tensor, noise: Sequence[Tensor]) -> Estimate:
        """Both control variates, layer by layer."""
        simulation = simulate(model, x, noise)
        with torch.set_grad_enabled(self.training and torch.is_grad_enabled()):
            gradients = [self._gradient(model, simulation, layer) for layer in range(len(model.layers))]
            # an image's answer is the mean over its paths: its square is what the variance is made of
            means = [gradient.unflatten(0, (-1, self.samples)).mean(1) for gradient in gradients]
            auxiliary = squared(means).repeat_interleave(self.samples) if self.training else None
        return simulation.answer(gradients, self.samples, auxiliary)

    def _gradient(self, model: SigmoidBeliefNet, simulation: Simulation, layer: int) -> Tensor:
        path, f, score = simulation.path, simulation.signals[layer], simulation.scores[layer]
        logits, z = path.logits[layer].detach(), path.z[layer]
        slopes = frozen_slope(model, path, layer)  # (N, H) g_j
        slope = mean_of_others(slopes, self.samples)
        at = (slope * z).sum(-1) - mean_of_others((slopes * z).sum(-1), self.samples)  # mean of g_j (z - z_j)
        known = mean_of_others(f, self.samples)
        here, flipped = (self.nets[layer](term, known) for term in flipped_taylor(slope, z, at))
        corrected = f + self.alpha[layer] * stein(logits, z, here[..., 0], flipped[..., 0])
        left = (f - mean_of_others(corrected, self.samples))[:, None] * score
        return left + self.beta[layer] * stein_of_score(logits, z, score, here[..., 1], flipped[..., 1])


class ControlNet(nn.Module):
    """h and h'' from two numbers: a Taylor term, and what is known of f."""

    LEAK = 0.3  # as in the authors' code

    def __init__(self, hidden: int, generator: torch.Generator | None) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(2, hidden), nn.Linear(hidden, 2)
        for linear in (self.first, self.last):
            nn.init.xavier_uniform_(linear.weight, generator=generator)
            nn.init.zeros_(linear.bias)

    def forward(self, taylor: Tensor, known: Tensor) -> Tensor:
        """(..., 2) from Taylor terms (N,) or (N, H) and what is known of f (N,)."""
        known = known if taylor.dim() == 1 else known[:, None].expand_as(taylor)
        hidden = self.first(torch.stack([taylor, known], dim=-1))
        answer: Tensor = self.last(leaky_relu(hidden, self.LEAK, inplace=True))  # it is large: no second copy
        return answer
