"""The multi-sample bound L = log mean over k of exp(f^k), and how much one of its samples changes it."""

from __future__ import annotations

import torch
from torch import Tensor


def bound_changes(f: Tensor, replaced: Tensor) -> Tensor:
    """L(f) - L(f with f^k replaced), averaged with L(replaced with f^k) - L(replaced): (B, K) for every k."""
    swap = torch.diag_embed(replaced - f)
    with_k_replaced = (f[:, None] + swap).logsumexp(2)
    with_k_kept = (replaced[:, None] - swap).logsumexp(2)
    changes = f.logsumexp(1, keepdim=True) - with_k_replaced + with_k_kept - replaced.logsumexp(1, keepdim=True)
    return changes / 2
