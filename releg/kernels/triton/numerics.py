"""Numerics of Bernoulli units inside a Triton kernel: bernoulli.py once more, for logits of any size.

log(1 + e) with e in (0, 1] is off by half a unit in the last place of 1, never more: these terms are summed with others
of that size or larger.
"""

import triton
import triton.language as tl


@triton.jit
def softplus_change(logits, delta):
    """softplus(logits + delta) - softplus(logits)."""
    after = logits + delta
    curved = tl.log(1 + tl.exp(-tl.abs(after))) - tl.log(1 + tl.exp(-tl.abs(logits)))
    return tl.maximum(after, 0.0) - tl.maximum(logits, 0.0) + curved
