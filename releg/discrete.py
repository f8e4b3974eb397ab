"""Algorithm 1 of Tokui & Sato (2016) as printed, for any directed model of Bernoulli and categorical variables.

A model is a list of nodes, parents first; each maps x and its parents' values to logits. f(x, z) is any function that
should be large in expectation, and need not be differentiable by z. `gradient` estimates the gradient of E f(x, z)
for all parameters at once, whether nodes share them or not, including those that f itself uses:

>>> import torch
>>> from torch import nn
>>> from releg.discrete import DiscreteModel, Node, bernoulli_node, gradient
>>> class HardExperts(nn.Module):
...     '''One of three straight lines is chosen for each x, then whether to turn it upside down.'''
...     def __init__(self):
...         super().__init__()
...         self.choice, self.turn, self.lines = nn.Linear(1, 3), nn.Linear(1, 3), nn.Linear(1, 3)
...     def nodes(self):
...         return [
...             Node("expert", (), lambda x, z: self.choice(x), states=3),
...             bernoulli_node("turned", ("expert",), lambda x, z: self.of_expert(self.turn(x), z)),
...         ]
...     def of_expert(self, values, z):
...         return values.gather(1, z["expert"][:, None]).squeeze(1)
...     def minus_loss(self, x, z):
...         predicted = self.of_expert(self.lines(x), z) * (1 - 2 * z["turned"])
...         return -(predicted - x.squeeze(1).abs()) ** 2
>>> _ = torch.manual_seed(0)
>>> net = HardExperts()
>>> model = DiscreteModel(net.nodes())
>>> optimiser = torch.optim.Adam(net.parameters(), lr=0.05)
>>> x = torch.linspace(-1, 1, 64)[:, None]
>>> losses = []
>>> for step in range(200):
...     answer = gradient(model, net.minus_loss, x, model.draw_noise(x))
...     optimiser.zero_grad()
...     answer.surrogate.mean().backward()
...     optimiser.step()
...     losses.append(-answer.f.mean().item())
>>> sum(losses[-20:]) < 0.1 * sum(losses[:20])
True
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Values = dict[str, Tensor]  # by name of the node


@dataclass(frozen=True)
class Node:
    """A variable with values 0 ... states - 1 and its conditional distribution q(z_i | x, parents).

    Values are (N,) long tensors: they index tables, and arithmetic with floating-point tensors promotes them.
    `logits(x, values of the parents)` gives (N, states) unnormalised log-probabilities, row by row.
    """

    name: str
    parents: Sequence[str]
    logits: Callable[[Tensor, Values], Tensor]
    states: int = 2

    def __post_init__(self) -> None:
        """Raise ValueError for a parent's name without its tuple, and for less than two states."""
        if isinstance(self.parents, str):
            raise ValueError(
                f"parents of node '{self.name}' is the string '{self.parents}', expected a sequence of names; "
                f"write ('{self.parents}',)"
            )
        if self.states < 2:
            raise ValueError(f"node '{self.name}' has states={self.states}, expected at least 2; leave constants out")


def bernoulli_node(name: str, parents: Sequence[str], logit: Callable[[Tensor, Values], Tensor]) -> Node:
    """A node with two states, given by the logit of its mean, (N,): z = 1 iff noise < sigmoid(logit)."""

    def logits(x: Tensor, values: Values) -> Tensor:
        one = logit(x, values)
        if one.shape != (len(x),):
            raise ValueError(
                f"the logit of node '{name}' has shape {tuple(one.shape)}, expected ({len(x)},); "
                "give one logit per row of x: drop a last axis by squeeze(-1), repeat a constant by expand(len(x))"
            )
        return torch.stack([torch.zeros_like(one), one], -1)

    return Node(name, parents, logits)


@dataclass(frozen=True)
class Reparameterisation:
    """z_i = g(logits, noise_i) with uniform noise: the function g, and the shape of one row's noise by states."""

    apply: Callable[[Tensor, Tensor], Tensor]  # (N, states), (N, *noise_shape) -> (N,)
    noise_shape: Callable[[int], tuple[int, ...]]


def _inverse_cdf(logits: Tensor, noise: Tensor) -> Tensor:
    """z = number of k >= 1 with noise < P(z >= k). Two states: z = 1 iff noise < mean, the paper's rule (section 2)."""
    tails = torch.softmax(logits, -1).flip(-1).cumsum(-1)[:, :-1]  # P(z >= k) for k = states - 1, ..., 1
    return (noise[:, None] < tails).sum(-1)


def _gumbel_max(logits: Tensor, noise: Tensor) -> Tensor:
    """z = argmax(logits + Gumbel noise), the latter being -log(-log(uniform))."""
    return (logits - (-noise.log()).log()).argmax(-1)


inverse_cdf = Reparameterisation(_inverse_cdf, noise_shape=lambda states: ())
gumbel_max = Reparameterisation(_gumbel_max, noise_shape=lambda states: (states,))


@dataclass(frozen=True)
class Sample:
    """One simulation of N rows."""

    z: Values  # (N,) long per node
    logits: Values  # (N, states) per node, given its parents in z; part of the autograd graph


class DiscreteModel:
    """q(z | x) = prod_i q(z_i | x, parents of z_i). Given the noise, everything here is deterministic.

    Args:
        nodes: the variables, parents before children.
        reparameterisation: `inverse_cdf` or `gumbel_max`; both are unbiased, the noise they share differs.
    """

    def __init__(self, nodes: Sequence[Node], reparameterisation: Reparameterisation = inverse_cdf) -> None:
        _check_graph(nodes)
        self.nodes = tuple(nodes)
        self.reparameterisation = reparameterisation
        self.descendants = {node.name: _descendants(node, self.nodes[i + 1 :]) for i, node in enumerate(self.nodes)}

    def draw_noise(self, x: Tensor, generator: torch.Generator | None = None) -> Values:
        """Uniform noise for one simulation per row of x, in its precision if that is a floating-point one."""
        dtype = x.dtype if x.is_floating_point() else torch.get_default_dtype()
        return {
            node.name: torch.rand(self._noise_shape(node, x), generator=generator, dtype=dtype, device=x.device)
            for node in self.nodes
        }

    def sample(self, x: Tensor, noise: Mapping[str, Tensor]) -> Sample:
        """z = g(x, noise): ancestral sampling of all nodes."""
        self.check_noise(x, noise)
        z: Values = {}
        logits: Values = {}
        for node in self.nodes:
            logits[node.name] = _logits(node, x, z)
            z[node.name] = self.reparameterisation.apply(logits[node.name].detach(), noise[node.name])
        return Sample(z, logits)

    @torch.no_grad()
    def clamp(self, x: Tensor, noise: Mapping[str, Tensor], z: Values, name: str, state: int) -> Values:
        """z with node `name` set to `state`, its descendants simulated anew from the same noise, the others reused."""
        clamped = {**z, name: torch.full_like(z[name], state)}
        for node in self.descendants[name]:
            clamped[node.name] = self.reparameterisation.apply(_logits(node, x, clamped), noise[node.name])
        return clamped

    def check_noise(self, x: Tensor, noise: Mapping[str, Tensor]) -> None:
        """Raise ValueError unless noise has uniform numbers of the right shape for every node and every row of x."""
        hint = "draw it with model.draw_noise(x)"
        if x.dim() == 0 or len(x) == 0:
            raise ValueError(f"x has shape {tuple(x.shape)}, expected (N, ...), N >= 1; give one row per simulation")
        names = [node.name for node in self.nodes]
        if set(noise) != set(names):
            raise ValueError(f"noise is for nodes {sorted(noise)}, expected {sorted(names)}; {hint}")
        for node in self.nodes:
            values, shape = noise[node.name], self._noise_shape(node, x)
            if values.shape != shape:
                raise ValueError(f"noise['{node.name}'] has shape {tuple(values.shape)}, expected {shape}; {hint}")
            low, high = torch.aminmax(values)
            if not bool((low >= 0) & (high < 1)):
                raise ValueError(
                    f"noise['{node.name}'] ranges from {low.item():g} to {high.item():g}, "
                    f"expected uniform numbers in [0, 1); {hint}"
                )

    def _noise_shape(self, node: Node, x: Tensor) -> tuple[int, ...]:
        return (len(x), *self.reparameterisation.noise_shape(node.states))


@dataclass(frozen=True)
class Gradient:
    """What Algorithm 1 answers for N rows. Signs as in the estimators: f is to grow, the surrogate to shrink."""

    f: Tensor  # (N,) detached, at the sample
    surrogate: Tensor  # (N,) equals -f; its gradient is the estimate of the gradient of -E f for every parameter
    sample: Sample
    clamped_f: Values  # (N, states) per node: f_k, simulated with the node clamped to k
    logit_grads: Values  # (N, states) per node, estimate of d E f / d logits


def gradient(
    model: DiscreteModel, f: Callable[[Tensor, Values], Tensor], x: Tensor, noise: Mapping[str, Tensor]
) -> Gradient:
    """Delta_i = sum_k f_k grad q(z_i = k | parents), f_k simulated with z_i = k and the noise of the others.

    Equation 2 and Algorithm 1 of Tokui & Sato (2016), whose line numbers stand in the comments.
    Cost: one evaluation of f and one simulation of the node's descendants per state of every node. Unbiased.

    Args:
        model: q(z | x).
        f: (x, z by name of node) -> (N,), row by row and finite for every z. The gradient w.r.t. parameters inside f is
            that at the sample. Where f contains -log q, detach that term: its own expected gradient is zero.
        x: (N, ...) inputs; repeat rows for several simulations of each.
        noise: `model.draw_noise(x)`.
    """
    sample = model.sample(x, noise)  # line 1, the noise being drawn already
    clamped_f: Values = {}
    logit_grads: Values = {}
    for node in model.nodes:  # line 2
        f_k = []
        for state in range(node.states):  # line 3
            z = model.clamp(x, noise, sample.z, node.name, state)  # line 4
            with torch.no_grad():
                f_k.append(_evaluate(f, x, z))  # line 5, without the factor grad q
        clamped_f[node.name] = torch.stack(f_k, -1)  # (N, states)
        logit_grads[node.name] = _sum_f_grad_q(clamped_f[node.name], sample.logits[node.name])  # lines 5 and 7
    value = _evaluate(f, x, sample.z)
    surrogate = -value
    for name, delta in logit_grads.items():
        logits = sample.logits[name]
        surrogate = surrogate - (delta * (logits - logits.detach())).sum(-1)  # adds zero, whose gradient is -Delta_i
    return Gradient(value.detach(), surrogate, sample, clamped_f, logit_grads)  # line 9


@torch.no_grad()
def _sum_f_grad_q(f_k: Tensor, logits: Tensor) -> Tensor:
    """sum_k f_k d q(k) / d logits = q * (f_k - E f), (N, states).

    f_k - E f = sum_j q_j (f_k - f_j) has no cancellation when one state has nearly all of the probability.
    """
    q = torch.softmax(logits, -1)
    differences = f_k[:, :, None] - f_k[:, None, :]  # (N, states, states)
    return q * (differences * q[:, None, :]).sum(-1)


def _logits(node: Node, x: Tensor, z: Values) -> Tensor:
    """Checked logits of the node given its parents in z."""
    logits = node.logits(x, {name: z[name] for name in node.parents})
    if logits.shape != (len(x), node.states):
        raise ValueError(
            f"logits of node '{node.name}' have shape {tuple(logits.shape)}, expected {(len(x), node.states)}; "
            "give one row per row of x: repeat constants by expand(len(x), -1)"
        )
    if not bool(torch.isfinite(logits).all()):
        raise FloatingPointError(
            f"logits of node '{node.name}' range from {logits.min().item()} to {logits.max().item()}, "
            "expected finite numbers; check the parameters, and exclude states by -1e4 instead of -inf"
        )
    return logits


def _evaluate(f: Callable[[Tensor, Values], Tensor], x: Tensor, z: Values) -> Tensor:
    """Checked f(x, z), (N,)."""
    value = torch.as_tensor(f(x, z))
    if value.shape != (len(x),):
        raise ValueError(f"f has shape {tuple(value.shape)}, expected ({len(x)},); sum over all axes but the first")
    if not bool(torch.isfinite(value).all()):
        row = int((~torch.isfinite(value)).nonzero()[0])
        states = {name: int(values[row]) for name, values in z.items()}
        raise FloatingPointError(
            f"f is {value[row].item()} at {states} in row {row}, expected finite numbers; all states of every node are "
            "simulated, also improbable ones: give the worst of them a finite value"
        )
    return value if value.is_floating_point() else value.to(torch.get_default_dtype())


def _descendants(node: Node, later: Sequence[Node]) -> tuple[Node, ...]:
    """The nodes that depend on `node`, directly or not, in topological order."""
    family = {node.name}
    for other in later:
        if not family.isdisjoint(other.parents):
            family.add(other.name)
    return tuple(other for other in later if other.name in family)


def _check_graph(nodes: Sequence[Node]) -> None:
    if not nodes:
        raise ValueError("nodes is empty, expected at least one; give a list of Node(name, parents, logits, states)")
    names = [node.name for node in nodes]
    for position, node in enumerate(nodes):
        if node.name in names[:position]:
            raise ValueError(f"two nodes are called '{node.name}', expected distinct names; rename one of them")
        for parent in node.parents:
            if parent not in names[:position]:
                fix = "reorder the nodes (a cycle has no order)" if parent in names else "add it, or correct the name"
                raise ValueError(
                    f"node '{node.name}' has the parent '{parent}', which is not among the nodes before it, "
                    f"expected one of {names[:position]}; {fix}"
                )
