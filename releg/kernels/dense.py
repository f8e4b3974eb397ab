"""The readable reference: Algorithm 1 for a sigmoid belief net, with every flip simulated in full, as in the paper.

No identity, no reuse, no skipping: the other engines must equal it. It costs M full simulations.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from releg import bernoulli
from releg.sbn import SigmoidBeliefNet, Trajectory
from releg.uncompiled import uncompiled

ROWS_AT_ONCE = 10_000  # (image, unit) pairs simulated together


@uncompiled  # a loop over all pairs of row and unit
@torch.no_grad()
def flip_differences(model: SigmoidBeliefNet, path: Trajectory, generative_logits: Sequence[Tensor]) -> list[Tensor]:
    """f1 - f0 of every unit, (N, H) per layer: f with the unit clamped to 1 minus f with it clamped to 0.

    `generative_logits` are not used; all engines have the same signature.
    """
    differences = []
    for layer, size in enumerate(model.layers):
        pairs = torch.cartesian_prod(torch.arange(len(path.x)), torch.arange(size)).to(path.x.device)
        parts = [
            _clamped_f(model, path, layer, chunk, 1.0) - _clamped_f(model, path, layer, chunk, 0.0)
            for chunk in pairs.split(ROWS_AT_ONCE)
        ]
        differences.append(torch.cat(parts).view(-1, size))
    return differences


def _clamped_f(model: SigmoidBeliefNet, path: Trajectory, layer: int, pairs: Tensor, value: float) -> Tensor:
    """f of every (row, unit) pair, with that unit of `layer` set to value and all deeper layers simulated again."""
    rows, units = pairs.T
    x = path.x[rows]
    z = [earlier[rows] for earlier in path.z[: layer + 1]]
    z[layer][torch.arange(len(rows), device=x.device), units] = value
    for deeper in range(layer + 1, len(model.layers)):
        logits = model.inference_logits(deeper, z[-1])
        z.append(bernoulli.sample(logits, path.noise[deeper][rows]))
    return model.log_p(x, z) - model.log_q(x, z)
