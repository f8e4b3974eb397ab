"""Small models with Bernoulli, categorical and continuous layers, whose gradient enumeration and quadrature give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from releg.discrete import Continuous, DiscreteModel, Gradient, Layer, Values
from tests.releg.discrete.layered import Graph, joint_states

TWO_LAYERS: Graph = {"a": (), "c": ("a",), "b": ("a", "c")}
SIZES = {"a": (2, 2), "b": (1, 3), "d": (2, 2), "c": (1, 0)}  # units, states; 0: continuous


@dataclass
class Mixed:
    """Logits and means from tanh of the parents' values; f is rugged in the discrete ones and has parameters too.

    Parameters have a leading axis of 1, or of N with a copy per row of x, which says which: so one backward pass gives
    each row's gradient of every parameter.
    """

    graph: Graph
    parameters: Values
    vectors: bool = False  # whether categorical layers are one-hot

    @staticmethod
    def random(graph: Graph, seed: int, vectors: bool = False) -> Mixed:
        generator = torch.Generator().manual_seed(seed)
        widths = {name: SIZES[name][0] * (SIZES[name][1] if SIZES[name][1] > 2 else 1) for name in graph}
        shapes = {
            name: (1 + sum(widths[parent] for parent in parents), 2 * widths[name]) for name, parents in graph.items()
        }
        shapes["f"] = (sum(widths.values()), 1)
        parameters = {
            name: torch.randn(1, *shape, generator=generator, dtype=torch.float64).requires_grad_()
            for name, shape in shapes.items()
        }
        return Mixed(graph, parameters, vectors)

    def per_row(self, rows: int) -> Mixed:
        copies = {k: v.detach().repeat(rows, 1, 1).requires_grad_() for k, v in self.parameters.items()}
        return replace(self, parameters=copies)

    def flat(self, name: str, values: Tensor) -> Tensor:
        """Values as numbers (N, width), one-hot if categorical."""
        states = SIZES[name][1]
        return (one_hot(values, states) if states > 2 and values.dim() == 2 else values).flatten(1).double()

    def output(self, name: str, x: Tensor, z: Mapping[str, Tensor]) -> Tensor:
        parents = [self.flat(parent, z[parent]) for parent in self.graph[name]]
        inputs = torch.cat([torch.ones(len(x), 1, dtype=torch.float64), *parents], 1)
        weights = self.parameters[name][x[:, 0].long() % len(self.parameters[name])]
        first, last = torch.einsum("ni,nij->nj", inputs, weights).chunk(2, 1)
        return torch.tanh(first) + last / 2

    def logits(self, name: str, x: Tensor, z: Mapping[str, Tensor]) -> Tensor:
        units, states = SIZES[name]
        found = self.output(name, x, z)
        return found if states == 2 else found.view(len(x), units, states)

    def continuous(self, x: Tensor, z: Mapping[str, Tensor], noise: Tensor) -> Tensor:
        found = self.output("c", x, z)
        return found + torch.exp(0.3 * found) * noise

    def f(self, x: Tensor, z: Mapping[str, Tensor]) -> Tensor:
        values = torch.cat([self.flat(name, z[name]) for name in self.graph], 1)
        weights = self.parameters["f"][x[:, 0].long() % len(self.parameters["f"])].squeeze(2)
        discrete = torch.cat([self.flat(name, z[name]) for name in self.graph if name != "c"], 1)
        numbers = torch.arange(1, discrete.shape[1] + 1, dtype=torch.float64)
        parity = ((discrete @ numbers).round().long() % 2).double()
        return 2 * parity + discrete @ numbers + 3 * torch.sin((values * weights).sum(1) + 1)

    def layer(self, name: str) -> Layer | Continuous:
        units, states = SIZES[name]
        if not states:
            return Continuous(name, self.graph[name], self.continuous, units)
        vectors = self.vectors and states > 2
        return Layer(name, self.graph[name], lambda x, z: self.logits(name, x, z), units, states, vectors)

    def model(self) -> DiscreteModel:
        return DiscreteModel([self.layer(name) for name in self.graph])

    def input(self, rows: int) -> Tensor:
        return torch.arange(rows, dtype=torch.float64)[:, None]


def exact_gradient(mixed: Mixed) -> Tensor:
    """Of sum_z q(z) f(z), by all parameters in a row, the normal variable by Gauss-Hermite quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    discrete = {name: SIZES[name] for name in mixed.graph if SIZES[name][1]}
    sizes = [states for units, states in discrete.values() for _ in range(units)]
    *columns, node = joint_states([*sizes, len(nodes)])
    split = torch.stack(columns, 1).split([units for units, _ in discrete.values()], 1)
    states = dict(zip(discrete, split, strict=True))
    x = torch.zeros(len(node), 1, dtype=torch.float64)
    probability = torch.tensor(weights / weights.sum())[node]
    z: Values = {}
    for name in mixed.graph:
        if name not in discrete:
            z[name] = mixed.continuous(x, z, torch.tensor(nodes)[node, None])
            continue
        logits = mixed.logits(name, x, z)
        wide = logits if logits.dim() == 3 else torch.stack([torch.zeros_like(logits), logits], -1)
        probability = probability * wide.softmax(-1).gather(2, states[name][..., None]).flatten(1).prod(1)
        z[name] = states[name] if logits.dim() == 3 else states[name].double()
    expected = (probability * mixed.f(x, z)).sum()
    return torch.cat([g.flatten() for g in torch.autograd.grad(expected, list(mixed.parameters.values()))])


def z_scores(answer: Gradient, copies: Mixed, exact: Tensor) -> Tensor:
    """Of the mean estimate of every parameter, against the exact gradient."""
    grads = torch.autograd.grad(-answer.surrogate.sum(), list(copies.parameters.values()))
    estimates = torch.cat([grad.flatten(1) for grad in grads], 1)
    error = estimates.mean(0) - exact
    return error / (estimates.std(0) / len(estimates) ** 0.5).clamp(min=1e-12)
