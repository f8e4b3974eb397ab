"""What replaces d z / d logits where z is one-hot: the straight-through family for categorical variables.

Each function returns a vector in place of z, (..., states); only its derivative w.r.t. the logits matters.
`slopes` has the same for binary z. The mean is softmax(logits); q = (mean + z) / 2 lies halfway from it to the sample.
"""

from __future__ import annotations

import torch
from torch import Tensor

from releg.estimators.parts.relaxation import categorical_concrete


def perturbed_given(logits: Tensor, z: Tensor, noise: Tensor) -> Tensor:
    """logits + Gumbel noise, given that the largest is that of z; noise (M, *shape of logits) is uniform.

    With E_k exponential and Z = sum of exp(logits), the largest is -log(E_z / Z), and another
    -log(E_k / exp(logits_k) + E_z / Z) (Paulus et al. 2021, section 3).
    """
    log_e = (-noise.clamp(min=torch.finfo(noise.dtype).tiny).log()).log()
    largest = (log_e * z).sum(-1, keepdim=True) - logits.logsumexp(-1, keepdim=True)
    return -torch.where(z == 1, largest, torch.logaddexp(log_e - logits, largest))


def categorical_rao(logits: Tensor, z: Tensor, noise: Tensor, temperature: float) -> Tensor:
    """The mean of softmax((logits + Gumbel noise) / temperature) over M draws of the noise given the sample z."""
    perturbed = perturbed_given(logits.detach(), z, noise)
    return torch.softmax((perturbed + differential(logits)) / temperature, -1).mean(0)


def differential(logits: Tensor) -> Tensor:
    """Zeros with the derivative of the logits; none where a logit is -inf."""
    finite = logits.clamp(min=torch.finfo(logits.dtype).min)
    return finite - finite.detach()


def halfway(logits: Tensor, z: Tensor, temperature: float = 1.0) -> Tensor:
    """Logits with the derivative of `logits` and softmax q, the mean in q being softmax(logits / temperature)."""
    q = (torch.softmax(logits.detach() / temperature, -1) + z) / 2
    return q.clamp(min=torch.finfo(q.dtype).tiny).log() + differential(logits)


def categorical_reinmax(logits: Tensor, z: Tensor, temperature: float = 1.0) -> Tensor:
    """2 q - mean / 2, q as a function of the logits (Liu et al. 2023, algorithm 2)."""
    return 2 * torch.softmax(halfway(logits, z, temperature), -1) - torch.softmax(logits, -1) / 2


def categorical_reinmax_variant(logits: Tensor, z: Tensor, noise: Tensor, temperature: float, control: float) -> Tensor:
    """ReinMax without noise, else ReinMax-Rao, or ReinMax-CV with a control other than 0.

    ReinMax-Rao has categorical_rao at the logits of q in place of q; its noise is (M, *shape of logits). ReinMax-CV is
    categorical_reinmax + control (categorical_rao - a concrete variable), both at the logits of q; its noise
    (1 + M, *shape of logits) is first that of the concrete variable, which is drawn afresh.
    """
    if len(noise) == 0:
        return categorical_reinmax(logits, z, temperature)
    middle = halfway(logits, z)
    if not control:
        return 2 * categorical_rao(middle, z, noise, temperature) - torch.softmax(logits, -1) / 2
    fresh = categorical_concrete(middle, noise[0], temperature)
    return categorical_reinmax(logits, z) + control * (categorical_rao(middle, z, noise[1:], temperature) - fresh)
