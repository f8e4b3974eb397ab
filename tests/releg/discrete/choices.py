"""How flips are chosen, written down a second time, and all the ways in which they can be."""

import torch
from torch import Tensor


def choice_cells(chances: Tensor) -> tuple[Tensor, Tensor]:
    """Of systematic sampling with these chances (N, J): one uniform number per cell and the widths, (N, J + 1) each."""
    edges = torch.cat([chances.cumsum(1) % 1, torch.zeros(len(chances), 1), torch.ones(len(chances), 1)], 1)
    edges = edges.sort(1).values
    return (edges[:, 1:] + edges[:, :-1]) / 2, edges.diff(dim=1)


def plain_chances(weights: Tensor, count: int) -> Tensor:
    """min(1, c w), c found by making the heaviest certain one after the other, row by row."""
    rows = []
    for row in weights.tolist():
        certain: set[int] = set()
        while True:
            rest = sum(w for j, w in enumerate(row) if j not in certain)
            scale = (count - len(certain)) / rest if rest > 0 else 0.0
            too_heavy = {j for j, w in enumerate(row) if j not in certain and scale * w > 1}
            if not too_heavy:
                break
            certain |= too_heavy
        rows.append([1.0 if j in certain else scale * w for j, w in enumerate(row)])
    return torch.tensor(rows, dtype=torch.float64)


def change_weights(logits: Tensor, z: Tensor) -> Tensor:
    """The length of q_k (one_hot(k) - q) for every other state k of every unit, (N, units * states)."""
    wide = logits if logits.dim() == 3 else torch.stack([torch.zeros_like(logits), logits], -1)
    q = wide.softmax(-1)
    states = q.shape[-1]
    lengths = q * (torch.eye(states, dtype=q.dtype) - q[..., None, :]).norm(dim=-1)
    return (lengths * (1 - torch.nn.functional.one_hot(z.long(), states))).flatten(1)
