"""The signal f_l of a layer: the terms of f = log p(x, z) - log q(z | x) that depend on it or on deeper layers.

The other terms do not depend on layer l given the shallower layers and would only add variance (NVIL, Mnih & Gregor
2014, section 3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.functional import linear

from releg import bernoulli
from releg.sbn import SigmoidBeliefNet

Sampler = Callable[[Tensor, Tensor], Tensor]  # logits and noise (N, H) to z in [0, 1]


def layer_signals(log_p_terms: list[Tensor], log_q_terms: list[Tensor]) -> list[Tensor]:
    """f_l = log p(z[-1]) + sum over m >= l of log p(z[m-1] | z[m]) - log q(z[m] | z[m-1]); x for z[m-1] if m = 0."""
    signal = log_p_terms[-1].detach()
    signals = []
    for log_p, log_q in zip(reversed(log_p_terms[:-1]), reversed(log_q_terms), strict=True):
        signal = signal + log_p.detach() - log_q.detach()
        signals.append(signal)
    return signals[::-1]


def continued_signal(
    model: SigmoidBeliefNet,
    layer: int,
    below: Tensor,
    logits: Tensor,
    z: Tensor,
    noise: Sequence[Tensor],
    sample: Sampler = bernoulli.sample,
) -> Tensor:
    """f_l at any z[l], with deeper layers simulated from there: (N,), differentiable w.r.t. z, not w.r.t. the weights.

    Args:
        model: its weights are constants here.
        layer: l.
        below: (N, ...) x for layer 0, else z[l-1].
        logits: (N, H) of q(z[l] | below).
        z: (N, H) in [0, 1].
        noise: (N, H) per layer; only layers deeper than l use it.
        sample: computes z of a deeper layer from its logits and noise.
    """
    total = _terms_of_layer(model, layer, below, logits, z)
    for deeper in range(layer + 1, len(model.layers)):
        below, net = z, model.inference[deeper]
        logits = linear(below, net.weight.detach(), net.bias.detach())
        z = sample(logits, noise[deeper])
        total = total + _terms_of_layer(model, deeper, below, logits, z)
    return total + bernoulli.relaxed_log_prob(model.prior_logits.detach(), z).sum(-1)


def _terms_of_layer(model: SigmoidBeliefNet, layer: int, below: Tensor, logits: Tensor, z: Tensor) -> Tensor:
    """log p(below | z) - log q(z | below), (N,)."""
    net = model.generative[layer]
    generated = linear(z, net.weight.detach(), net.bias.detach())
    return bernoulli.relaxed_log_prob(generated, below).sum(-1) - bernoulli.relaxed_log_prob(logits, z).sum(-1)


def derivative(values: Tensor, by: Tensor, create_graph: bool = False) -> Tensor:
    """d values_n / d by_n for every row n, with the shape of `by`. The rows must be independent."""
    (gradient,) = torch.autograd.grad(values.sum(), by, create_graph=create_graph)
    return gradient
