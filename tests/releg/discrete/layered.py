"""Small models of several layers, any code in their logits, whose expectations can be taken by enumeration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from releg import bernoulli
from releg.discrete import DiscreteModel, Layer, Node, Values, gradient

Graph = dict[str, tuple[str, ...]]  # layer -> parents
DIAMOND: Graph = {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c")}
Sizes = dict[str, tuple[int, int]]  # layer -> units, states


@dataclass
class Layered:
    """Logits by a nonlinear net of the parents' values, whose last weights all layers share; f has parameters too."""

    graph: Graph
    sizes: Sizes
    parameters: Values
    reward_weights: Tensor  # (all units,)

    @staticmethod
    def random(graph: Graph, sizes: Sizes, seed: int, scale: float = 1.5) -> Layered:
        generator = torch.Generator().manual_seed(seed)
        shapes: dict[str, tuple[int, ...]] = {"shared": (4, max(units * states for units, states in sizes.values()))}
        for name, parents in graph.items():
            inputs = sum(sizes[parent][0] * sizes[parent][1] for parent in parents)
            shapes |= {name: (inputs, 4)} if inputs else {}
            shapes |= {f"{name} bias": (sizes[name][0] * sizes[name][1],)}
        shapes |= {"f": (sum(units for units, _ in sizes.values()),)}
        parameters = {
            name: (scale * torch.randn(shape, generator=generator, dtype=torch.float64)).requires_grad_()
            for name, shape in shapes.items()
        }
        return Layered(graph, sizes, parameters, 3 * torch.randn(shapes["f"], generator=generator, dtype=torch.float64))

    def logits(self, name: str, x: Tensor, z: Mapping[str, Tensor]) -> Tensor:
        """(N, units, states), or (N, units) for two states."""
        units, states = self.sizes[name]
        seen = [one_hot(z[p].long(), self.sizes[p][1]).flatten(1).double() for p in self.graph[name]]
        hidden = torch.cat(seen, 1) @ self.parameters[name] if seen else x.new_zeros(len(x), 4)
        both = torch.tanh(hidden + x) @ self.parameters["shared"][:, : units * states] + self.parameters[f"{name} bias"]
        wide = both.view(len(x), units, states)
        return wide if states > 2 else wide[..., 1] - wide[..., 0]

    def f(self, x: Tensor, z: Mapping[str, Tensor]) -> Tensor:
        """Rugged, not differentiable w.r.t. z, with parameters of its own."""
        values = torch.cat([z[name].to(torch.float64) for name in self.graph], 1)
        parity = (values.sum(1).long() % 2).double()
        return 2 * parity + torch.sin((values + 1) @ self.parameters["f"]) + (values @ self.reward_weights).round()

    def model(self) -> DiscreteModel:
        return DiscreteModel([self.layer(name) for name in self.graph])

    def layer(self, name: str) -> Layer:
        return Layer(name, self.graph[name], lambda x, z: self.logits(name, x, z), *self.sizes[name])

    def node_model(self) -> DiscreteModel:
        """The same with a node per unit."""
        return DiscreteModel([self.node(name, unit) for name in self.graph for unit in range(self.sizes[name][0])])

    def node(self, name: str, unit: int) -> Node:
        units = {parent: range(self.sizes[parent][0]) for parent in self.graph[name]}

        def logits(x: Tensor, z: Values) -> Tensor:
            one = self.logits(name, x, self.stacked(z, self.graph[name]))[:, unit]
            return one if self.sizes[name][1] > 2 else torch.stack([torch.zeros_like(one), one], -1)

        return Node(f"{name}.{unit}", [f"{p}.{u}" for p in units for u in units[p]], logits, self.sizes[name][1])

    def node_f(self, x: Tensor, z: Values) -> Tensor:
        return self.f(x, self.stacked(z, tuple(self.graph)))

    def stacked(self, z: Mapping[str, Tensor], names: tuple[str, ...]) -> Values:
        """Layers made of nodes."""
        return {name: torch.stack([z[f"{name}.{u}"] for u in range(self.sizes[name][0])], 1) for name in names}

    def split(self, values: Mapping[str, Tensor]) -> Values:
        """Nodes' noise made of layers'."""
        return {f"{name}.{u}": values[name][:, u] for name in self.graph for u in range(self.sizes[name][0])}

    def input(self, rows: int) -> Tensor:
        return torch.full((rows, 1), 0.3, dtype=torch.float64)

    def all_values(self, names: tuple[str, ...]) -> Values:
        """Every configuration of some layers, (J, units) each."""
        if not names:
            return {}
        columns = joint_states([self.sizes[name][1] for name in names for _ in range(self.sizes[name][0])])
        parts = torch.stack(columns, 1).split([self.sizes[name][0] for name in names], 1)
        return dict(zip(names, parts, strict=True))


def joint_states(sizes: list[int]) -> list[Tensor]:
    """All combinations, one (J,) array per variable."""
    return [axis.flatten() for axis in torch.meshgrid(*[torch.arange(size) for size in sizes], indexing="ij")]


def exact_gradient(layered: Layered) -> list[Tensor]:
    """Of sum_z q(z) f(z), by every parameter."""
    z = layered.all_values(tuple(layered.graph))
    x = layered.input(len(next(iter(z.values()))))
    log_q = torch.zeros(len(x), dtype=torch.float64)
    for name, (_, states) in layered.sizes.items():
        logits = layered.logits(name, x, z)
        if states == 2:
            log_q = log_q + bernoulli.log_prob(logits, z[name].double()).sum(1)
        else:
            log_q = log_q + logits.log_softmax(-1).gather(2, z[name][..., None]).flatten(1).sum(1)
    return list(torch.autograd.grad((log_q.exp() * layered.f(x, z)).sum(), list(layered.parameters.values())))


@torch.no_grad()
def noise_cells(layered: Layered) -> tuple[Values, Tensor]:
    """One noise per cell between neighbouring thresholds of every unit, all combinations; their probabilities."""
    centres, widths = [], []
    for name, (units, states) in layered.sizes.items():
        parents = layered.all_values(layered.graph[name])
        x = layered.input(prod(s**u for u, s in (layered.sizes[p] for p in layered.graph[name])))
        logits = layered.logits(name, x, parents)
        wide = logits if states > 2 else torch.stack([torch.zeros_like(logits), logits], -1)
        tails = 1 - wide.softmax(-1).cumsum(-1)[..., :-1]  # (J, units, states - 1)
        for unit in range(units):
            edges = torch.cat([torch.tensor([0.0, 1.0], dtype=torch.float64), tails[:, unit].flatten()]).sort().values
            centres.append((edges[1:] + edges[:-1]) / 2)
            widths.append(edges.diff())
    cells = joint_states([len(width) for width in widths])
    weights = torch.stack([width[cell] for width, cell in zip(widths, cells, strict=True)]).prod(0)
    columns = torch.stack([u[cell] for u, cell in zip(centres, cells, strict=True)], 1)
    parts = columns.split([units for units, _ in layered.sizes.values()], 1)
    return dict(zip(layered.graph, parts, strict=True)), weights


def expected_gradient(layered: Layered, model: DiscreteModel) -> list[Tensor]:
    """The expected estimate, without sampling error."""
    noise, weights = noise_cells(layered)
    answer = gradient(model, layered.f, layered.input(len(weights)), noise)
    return list(torch.autograd.grad(-(weights * answer.surrogate).sum(), list(layered.parameters.values())))
