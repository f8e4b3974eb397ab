"""Small models whose expectations can be taken by enumeration."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from releg.discrete import DiscreteModel, Node, Reparameterisation, Values, gradient

Graph = dict[str, tuple[str, ...]]  # node -> parents
DIAMOND: Graph = {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c")}


@dataclass
class Tabular:
    """Logits from random tables, plus one slope by x that all nodes share; f is rugged and has parameters of its own.

    Parameters have a leading axis of 1, or of N with one copy per row, so that one backward pass gives each row's
    gradient of every parameter. The second column of x says which row it is.
    """

    graph: Graph
    states: dict[str, int]
    tables: Values  # (1 or N, states of the parents ..., states) per node; for f and the slope, (1 or N, size)
    rewards: Tensor  # (states ...), constant

    @staticmethod
    def random(graph: Graph, states: list[int], seed: int, scale: float = 1.5) -> Tabular:
        generator = torch.Generator().manual_seed(seed)
        sizes = dict(zip(graph, states, strict=True))
        shapes = {name: [*(sizes[parent] for parent in graph[name]), sizes[name]] for name in graph}
        shapes |= {"f": [len(graph)], "slope": [max(states)]}
        tables = {
            name: (scale * torch.randn(1, *shape, generator=generator, dtype=torch.float64)).requires_grad_()
            for name, shape in shapes.items()
        }
        return Tabular(graph, sizes, tables, 3 * torch.randn(states, generator=generator, dtype=torch.float64))

    def per_row(self, rows: int) -> Tabular:
        copies = {k: v.detach().repeat(rows, *[1] * (v.dim() - 1)).requires_grad_() for k, v in self.tables.items()}
        return Tabular(self.graph, self.states, copies, self.rewards)

    def look_up(self, name: str, x: Tensor, indices: list[Tensor]) -> Tensor:
        rows_and_indices = (x[:, 1].long() % len(self.tables[name]), *indices)
        return self.tables[name][rows_and_indices]

    def f(self, x: Tensor, z: Values) -> Tensor:
        values = [z[name] for name in self.graph]
        return self.rewards[tuple(values)] + torch.sin((self.look_up("f", x, []) * (torch.stack(values, 1) + 1)).sum(1))

    def nodes(self) -> list[Node]:
        return [self.node(name) for name in self.graph]

    def node(self, name: str) -> Node:
        states = self.states[name]

        def logits(x: Tensor, z: Values) -> Tensor:
            slope = self.look_up("slope", x, [])[:, :states]
            return self.look_up(name, x, [z[p] for p in self.graph[name]]) + x[:, :1] * slope

        return Node(name, self.graph[name], logits, states)

    def input(self, rows: int) -> Tensor:
        return torch.stack([torch.full((rows,), 0.7), torch.arange(rows)], 1).double()


def joint_states(sizes: list[int]) -> list[Tensor]:
    """All combinations, one (J,) array per variable."""
    return [axis.flatten() for axis in torch.meshgrid(*[torch.arange(size) for size in sizes], indexing="ij")]


def exact_gradient(tabular: Tabular) -> Tensor:
    """Gradient of sum_z q(z | x) f(x, z) for all parameters in a row."""
    z = dict(zip(tabular.graph, joint_states(list(tabular.states.values())), strict=True))
    x = tabular.input(prod(tabular.states.values()))
    log_q = torch.zeros(len(x), dtype=torch.float64)
    for node in tabular.nodes():
        log_q = log_q + node.logits(x, z).log_softmax(-1)[torch.arange(len(x)), z[node.name]]
    grads = torch.autograd.grad((log_q.exp() * tabular.f(x, z)).sum(), list(tabular.tables.values()))
    return torch.cat([grad.flatten() for grad in grads])


@torch.no_grad()
def noise_cells(tabular: Tabular) -> tuple[Values, Tensor]:
    """Everything inverse-CDF sampling can do: one noise per cell between neighbouring thresholds; its probability."""
    centres, widths = [], []
    for node in tabular.nodes():
        sizes = [tabular.states[parent] for parent in node.parents]
        parents = dict(zip(node.parents, joint_states(sizes), strict=True)) if sizes else {}
        cdf = node.logits(tabular.input(prod(sizes)), parents).softmax(-1).cumsum(-1)[:, :-1]
        edges = torch.cat([torch.tensor([0.0, 1.0], dtype=torch.float64), (1 - cdf).flatten()]).sort().values
        centres.append((edges[1:] + edges[:-1]) / 2)
        widths.append(edges.diff())
    cells = joint_states([len(width) for width in widths])
    weights = torch.stack([width[cell] for width, cell in zip(widths, cells, strict=True)]).prod(0)
    noise = {name: u[cell] for name, u, cell in zip(tabular.graph, centres, cells, strict=True)}
    return noise, weights


def row_gradients(tabular: Tabular, of: Tensor) -> Tensor:
    """(N, parameters): gradient of each entry of `of` by the parameters of its own row."""
    grads = torch.autograd.grad(of.sum(), list(tabular.tables.values()), allow_unused=True, retain_graph=True)
    filled = [torch.zeros_like(t) if g is None else g for t, g in zip(tabular.tables.values(), grads, strict=True)]
    return torch.cat([grad.flatten(1) for grad in filled], 1)


def enumerated_mean(tabular: Tabular, kind: type[DiscreteModel] = DiscreteModel) -> Tensor:
    """Expected estimate of the gradient of E f, without sampling error."""
    noise, weights = noise_cells(tabular)
    answer = gradient(kind(tabular.nodes()), tabular.f, tabular.input(len(weights)), noise)
    grads = torch.autograd.grad(-(weights * answer.surrogate).sum(), list(tabular.tables.values()))
    return torch.cat([grad.flatten() for grad in grads])


def z_scores(
    tabular: Tabular, reparameterisation: Reparameterisation, kind: type[DiscreteModel] = DiscreteModel
) -> Tensor:
    """Of the mean estimate of every parameter, against the exact gradient."""
    rows = 10_000
    copies = tabular.per_row(rows)
    model = kind(copies.nodes(), reparameterisation)
    x = tabular.input(rows)
    answer = gradient(model, copies.f, x, model.draw_noise(x, torch.Generator().manual_seed(0)))
    estimates = row_gradients(copies, -answer.surrogate)
    error = estimates.mean(0) - exact_gradient(tabular)
    return error / (estimates.std(0) / len(x) ** 0.5).clamp(min=1e-12)
