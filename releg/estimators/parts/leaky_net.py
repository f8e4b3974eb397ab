"""A net of two numbers with one layer of leaky units, at a point and at many neighbours of it at once."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu


def evaluate(first: nn.Linear, last: nn.Linear, leak: float, s: Tensor, k: Tensor, steps: Tensor) -> tuple[Tensor, ...]:
    """The answers (N, outputs) at (s, k), and (N, J, outputs) at (s[n] + steps[n, j], k[n]) for all j.

    Args:
        first: from the two numbers to the leaky units.
        last: from these to the outputs.
        leak: the units' slope below zero.
        s: (N,) the number that varies.
        k: (N,) the other one.
        steps: (N, J)
    """
    c = first(torch.stack([s, k], dim=-1))  # (N, hidden)
    return last(leaky_relu(c, leak)), sweep(c, first.weight[:, 0], last, leak, steps)


def sweep(c: Tensor, w: Tensor, last: nn.Linear, leak: float, steps: Tensor) -> Tensor:
    """The answers at the neighbours, by a sweep over the places where a unit bends.

    A unit is leaky(c + w step): two straight lines that meet at step = -c / w. So every answer is a straight line
    between two neighbours of these places. They are sorted once for each n; a cumulative sum over them gives the slope
    and the height of each piece, and a search the piece of each step. This takes J log(hidden) operations, not
    J * hidden, and differentiates like any other.
    """
    flat = w == 0  # such a unit never changes sides
    places = torch.where(flat, torch.inf, -c / torch.where(flat, torch.ones_like(w), w)).detach()
    left = leak + (1 - leak) * ((w < 0) | (flat & (c > 0))).to(c)  # its slope left of there, as a part of w
    change = (1 - leak) * w.sign()  # what crossing the place adds to that
    order = places.argsort(1)
    slopes = _pieces(left * w, (change * w).expand_as(c), last.weight, order)
    heights = _pieces(left * c, change * c, last.weight, order) + last.bias
    piece = torch.searchsorted(places.gather(1, order), steps.detach())  # (N, J), from 0 to hidden
    return _pick(slopes, piece) * steps[..., None] + _pick(heights, piece)


def _pieces(start: Tensor, changes: Tensor, weights: Tensor, order: Tensor) -> Tensor:
    """(N, hidden + 1, outputs): the sum over units on the first piece, and after each change, in this order."""
    first = start @ weights.T
    later = changes.gather(1, order)[..., None] * weights.T[order]
    return torch.cat([first[:, None], first[:, None] + later.cumsum(1)], dim=1)


def _pick(pieces: Tensor, piece: Tensor) -> Tensor:
    """(N, J, outputs): those of the pieces that the indices name."""
    return pieces.gather(1, piece[..., None].expand(-1, -1, pieces.shape[2]))
