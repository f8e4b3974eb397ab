"""A variational autoencoder with three layers of Bernoulli variables and an MLP for every conditional.

releg/README.md shows this file from the first import on.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from releg import bernoulli
from releg.discrete import DiscreteModel, Layer, Values


def mlp(inputs: int, outputs: int) -> nn.Sequential:
    """One hidden layer of 64 tanh units."""
    return nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, outputs))


class ThreeLayerVAE(nn.Module):
    """q(z1 | x) q(z2 | z1) q(z3 | z2) and p(z3) p(z2 | z3) p(z1 | z2) p(x | z1), for x of that mean."""

    def __init__(self, mean: Tensor, units: tuple[int, int, int] = (100, 60, 40)) -> None:
        super().__init__()
        self.mean, self.units = mean, units
        sizes = list(pairwise([len(mean), *units]))
        self.encoders = nn.ModuleList(mlp(below, above) for below, above in sizes)
        self.decoders = nn.ModuleList(mlp(above, below) for below, above in sizes)
        *_, bias = self.decoders[0].parameters()
        bias.data = torch.logit(mean.clamp(0.01, 0.99))  # the mean of x need not be learned
        self.prior = nn.Parameter(torch.zeros(units[-1]))
        encode1, encode2, encode3 = self.encoders
        self.model = DiscreteModel(
            [
                Layer("z1", (), lambda x, z: encode1(x - mean), units[0]),
                Layer("z2", ("z1",), lambda x, z: encode2(z["z1"]), units[1]),
                Layer("z3", ("z2",), lambda x, z: encode3(z["z2"]), units[2]),
            ]
        )

    def elbo(self, x: Tensor, z: Values) -> Tensor:
        """f(x, z) = log p(x, z) - log q(z | x), (N,)."""
        z1, z2, z3 = z["z1"], z["z2"], z["z3"]
        log_p = bernoulli.relaxed_log_prob(self.prior, z3).sum(-1)
        for decoder, below, above in zip(self.decoders, [x, z1, z2], [z1, z2, z3], strict=True):
            log_p = log_p + bernoulli.relaxed_log_prob(decoder(above), below).sum(-1)
        log_q = torch.zeros_like(log_p)
        for encoder, below, above in zip(self.encoders, [x - self.mean, z1, z2], [z1, z2, z3], strict=True):
            logits = encoder(below).detach()  # the expected gradient of log q itself is zero
            log_q = log_q + bernoulli.relaxed_log_prob(logits, above).sum(-1)
        return log_p - log_q
