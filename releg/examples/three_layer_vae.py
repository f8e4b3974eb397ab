"""A variational autoencoder with three layers of Bernoulli variables and an MLP for every conditional."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from releg import bernoulli
from releg.discrete import DiscreteModel, Layer, Values


def mlp(inputs: int, outputs: int, hidden: int = 64) -> nn.Sequential:
    """One hidden layer of tanh units."""
    return nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, outputs))


class ThreeLayerVAE(nn.Module):
    """q(z1 | x) q(z2 | z1) q(z3 | z2) and p(z3) p(z2 | z3) p(z1 | z2) p(x | z1)."""

    def __init__(self, data_size: int = 784, units: Sequence[int] = (100, 60, 40)) -> None:
        super().__init__()
        self.units = tuple(units)
        pairs = list(pairwise([data_size, *units]))
        self.encoders = nn.ModuleList(mlp(below, above) for below, above in pairs)
        self.decoders = nn.ModuleList(mlp(above, below) for below, above in pairs)
        self.prior = nn.Parameter(torch.zeros(units[-1]))
        to_z1, to_z2, to_z3 = self.encoders
        self.model = DiscreteModel(
            [
                Layer("z1", (), lambda x, z: to_z1(x - 0.5), units[0]),
                Layer("z2", ("z1",), lambda x, z: to_z2(z["z1"]), units[1]),
                Layer("z3", ("z2",), lambda x, z: to_z3(z["z2"]), units[2]),
            ]
        )

    def elbo(self, x: Tensor, z: Values) -> Tensor:
        """f(x, z) = log p(x, z) - log q(z | x), (N,)."""
        values = [x, z["z1"], z["z2"], z["z3"]]
        total = bernoulli.log_prob(self.prior, values[-1]).sum(-1)
        for decoder, below, above in zip(self.decoders, values, values[1:], strict=False):
            total = total + bernoulli.log_prob(decoder(above), below).sum(-1)
        with torch.no_grad():  # the expected gradient of log q itself is zero
            inputs = [x - 0.5, *values[1:-1]]
            for encoder, below, above in zip(self.encoders, inputs, values[1:], strict=True):
                total = total - bernoulli.log_prob(encoder(below), above).sum(-1)
        return total
