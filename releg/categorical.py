"""Numerics of one layer of categorical units, given by unnormalised log-probabilities on the last axis.

`bernoulli` is the same for two states and one logit. Logits are (..., states), values z are long and (...).
"""

import torch
from torch import Tensor
from torch.nn.functional import one_hot


def sample(logits: Tensor, noise: Tensor) -> Tensor:
    """z = number of k >= 1 with noise < P(z >= k). Two states: z = 1 iff noise < mean, the paper's rule (section 2)."""
    tails = torch.softmax(logits, -1).flip(-1).cumsum(-1)  # P(z >= k) for k = states - 1, ..., 0
    return (noise[..., None] < tails[..., :-1] / tails[..., -1:]).sum(-1)  # P(z >= 0) is 1 only up to rounding


def gumbels(noise: Tensor) -> Tensor:
    """-log(-log(noise)), finite also where the noise is 0."""
    return -(-noise.clamp(min=torch.finfo(noise.dtype).tiny).log()).log()


def gumbel_max(logits: Tensor, noise: Tensor) -> Tensor:
    """z = argmax(logits + Gumbel noise); the noise has the shape of the logits."""
    return (logits + gumbels(noise)).argmax(-1)


def score(logits: Tensor, z: Tensor) -> Tensor:
    """d log q(z) / d logits = one_hot(z) - q, without cancellation where one state has nearly all."""
    taken = one_hot(z, logits.shape[-1]).to(logits.dtype)
    others = torch.softmax(logits, -1) * (1 - taken)
    return taken * others.sum(-1, keepdim=True) - others


def gradient_by_logits(logits: Tensor, f_k: Tensor) -> Tensor:
    """The gradient of sum_k q(k) f_k w.r.t. the logits, q * (f_k - E f); f_k is (..., states), up to a constant.

    f is taken relative to that of the most probable state: so there is no cancellation when that one has nearly all of
    the probability.
    """
    q = torch.softmax(logits, -1)
    relative = f_k - f_k.gather(-1, q.argmax(-1, keepdim=True))
    return q * (relative - (q * relative).sum(-1, keepdim=True))
