"""RODEO's estimate for one layer: leave-one-out with two learned control variates made by a Stein operator."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from releg.checks import check_at_least
from releg.estimators.parts.leaky_net import evaluate
from releg.estimators.parts.other_paths import mean_of_others
from releg.estimators.parts.stein import along_changes, stein, stein_of_score


class SteinControl(nn.Module):
    """(f_k - mean over j != k of (f_j + alpha (A h_j)(z_j))) (z_k - mean) + beta (A h'_k)(z_k), for K samples k.

    A is the Stein operator; h_k(z) and h'_k(z) = h''_k(z) (z - mean) come from a net on two numbers, the mean of the
    other samples' f and the mean of their Taylor terms g_j (z - z_j), g_j = d f / d z at sample j: what is known of f
    without evaluating it. With alpha = beta = 0, where they start, it is leave-one-out. Shi, Zhou, Hwang, Titsias &
    Mackey (2022). Unbiased whatever the net and g are: its parameters are trained on the square of the estimate, whose
    expectation is the variance plus a constant.

    Args:
        hidden: leaky units of the net.
        generator: of its first weights.
    """

    LEAK = 0.3  # as in the authors' code

    def __init__(self, hidden: int = 100, generator: torch.Generator | None = None) -> None:
        super().__init__()
        check_at_least("hidden", hidden, 1, "the default is 100")
        self.alpha, self.beta = nn.Parameter(torch.zeros(())), nn.Parameter(torch.zeros(()))
        self.first, self.last = nn.Linear(2, hidden), nn.Linear(hidden, 2)
        for linear in (self.first, self.last):
            nn.init.xavier_uniform_(linear.weight, generator=generator)
            nn.init.zeros_(linear.bias)

    def forward(self, f: Tensor, slopes: Tensor, logits: Tensor, z: Tensor, score: Tensor, samples: int) -> Tensor:
        """The estimate of every sample, like z; `samples` consecutive rows belong together.

        Args:
            f: (N,) at z.
            slopes: like z, d f / d z there.
            logits: (N, H) of binary z, (N, H, states) of one-hot z.
            z: like the logits.
            score: like the logits, z - mean.
            samples: K.
        """
        slope = mean_of_others(slopes, samples)
        # mean over the others of g_j (z - z_j), at z and after each change of z
        at = (slope * z).flatten(1).sum(1) - mean_of_others((slopes * z).flatten(1).sum(1), samples)
        along = along_changes(slope, z)
        mean_f, one_each = mean_of_others(f, samples), (-1, *[1] * (z.dim() - 1))
        unchanged, changed = evaluate(self.first, self.last, self.LEAK, at, mean_f, along.flatten(1))
        changed = changed.view(*along.shape, 2)
        corrected = f + self.alpha * stein(logits, z, unchanged[..., 0], changed[..., 0])
        left = (f - mean_of_others(corrected, samples)).view(one_each) * score
        return left + self.beta * stein_of_score(logits, z, score, unchanged[..., 1], changed[..., 1])
