"""What replaces d z / d logit where z is binary: the slopes of the straight-through family.

p = sigmoid(logit); q = (p + z) / 2 lies halfway from the mean to the sample.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from releg import bernoulli
from releg.checks import check_at_least
from releg.estimators.parts.relaxation import RelaxedPath, check_temperature, hidden, hidden_given, relaxed_path
from releg.sbn import SigmoidBeliefNet

Slope = Callable[[Tensor, Tensor, Sequence[Tensor]], Tensor]  # of logits, z and further noise, (N, H) each


def sloped_path(model: SigmoidBeliefNet, x: Tensor, noise: Sequence[Tensor], slope: Slope) -> RelaxedPath:
    """f along the binary path, with what `slope` returns as d z / d logits.

    Args:
        model: the weights.
        x: (N, data_size).
        noise: (N, H) per layer, of the path, then further draws for the slopes.
        slope: of one layer, from its logits, z and its further draws.
    """
    depth = len(model.layers)
    further = iter([noise[depth + layer :: depth] for layer in range(depth)])  # layer by layer

    def sample(logits: Tensor, layer_noise: Tensor) -> Tensor:
        constant = logits.detach()
        z = bernoulli.sample(constant, layer_noise)
        return z + slope(constant, z, next(further)) * (logits - constant)

    return relaxed_path(model, x, noise[:depth], sample)


def concrete_slope(h: Tensor, temperature: float) -> Tensor:
    """The derivative of sigmoid(h / temperature) w.r.t. the logit that is part of h."""
    return bernoulli.variance(h / temperature) / temperature


def rao_slope(logits: Tensor, z: Tensor, noise: Tensor, temperature: float) -> Tensor:
    """The mean of concrete_slope over h drawn given the sample z; noise (M, *shape of logits)."""
    return concrete_slope(hidden_given(logits, z, noise), temperature).mean(0)


def halfway_logits(logits: Tensor, z: Tensor, temperature: float) -> Tensor:
    """logit(q), q = (sigmoid(logits / temperature) + z) / 2, without cancellation: ±log((1 + c) / (1 - c)).

    c is the probability of the value that z has; 1 - c keeps its digits where the unit is saturated.
    """
    sign = 2 * z - 1
    scaled = sign * logits / temperature
    return sign * (torch.log1p(torch.sigmoid(scaled)) - torch.nn.functional.logsigmoid(-scaled))


def reinmax_slope(logits: Tensor, z: Tensor, temperature: float = 1.0) -> Tensor:
    """2 q (1 - q) - p (1 - p) / 2: Heun's method where straight-through is Euler's."""
    return 2 * bernoulli.variance(halfway_logits(logits, z, temperature)) - bernoulli.variance(logits) / 2


def check_reinmax(temperature: float, draws: int, control: float) -> None:
    """Raise ValueError unless these settings of ReinMax go together."""
    check_temperature(temperature, 1)
    check_at_least("draws", draws, 0, "0 is plain ReinMax")
    if control and not draws:
        raise ValueError(f"control is {control} with draws = 0, expected draws of at least 1; set draws to 10, say")


def reinmax_variant_slope(
    logits: Tensor, z: Tensor, noise: Sequence[Tensor] | Tensor, temperature: float, control: float
) -> Tensor:
    """ReinMax without noise, else ReinMax-Rao, or ReinMax-CV with a control other than 0.

    ReinMax-Rao has rao_slope at logit(q) in place of q (1 - q); its noise is (M, N, H). ReinMax-CV is reinmax_slope +
    control (rao_slope - concrete_slope), both at logit(q); its noise is (1 + M, N, H), first that of concrete_slope,
    which is drawn afresh.
    """
    if len(noise) == 0:
        return reinmax_slope(logits, z, temperature)
    draws, halfway = torch.stack(list(noise)), halfway_logits(logits, z, 1.0)
    if not control:
        return 2 * rao_slope(halfway, z, draws, temperature) - bernoulli.variance(logits) / 2
    fresh = concrete_slope(hidden(halfway, draws[0]), temperature)
    return reinmax_slope(logits, z) + control * (rao_slope(halfway, z, draws[1:], temperature) - fresh)
