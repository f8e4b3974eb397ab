"""Any estimator on any directed model of discrete variables; by default Algorithm 1 of Tokui & Sato (2016).

A model is a list of layers, parents first; each maps x and its parents' values to logits. A `Layer` has any number of
units, a `Node` is a single variable, a `Continuous` layer brings a reparameterised sampler of its own. f(x, z) is any
function that should be large in expectation, and need not be differentiable w.r.t. z. `gradient` estimates the gradient
of E f(x, z) for all parameters at once, whether layers share them or not, including those that f itself uses:

>>> import torch
>>> from torch import nn
>>> from releg.discrete import DiscreteModel, Layer, Node, gradient
>>> class HardExperts(nn.Module):
...     '''One of three straight lines is chosen for each x, then whether to turn it upside down.'''
...     def __init__(self):
...         super().__init__()
...         self.choice, self.turn, self.lines = nn.Linear(1, 3), nn.Linear(1, 3), nn.Linear(1, 3)
...     def layers(self):
...         return [
...             Node("expert", (), lambda x, z: self.choice(x), states=3),
...             Layer("turned", ("expert",), lambda x, z: self.of_expert(self.turn(x), z), units=1),
...         ]
...     def of_expert(self, values, z):
...         return values.gather(1, z["expert"][:, None])
...     def minus_loss(self, x, z):
...         predicted = self.of_expert(self.lines(x), z) * (1 - 2 * z["turned"])
...         return -(predicted - x.abs()).square().squeeze(1)
>>> _ = torch.manual_seed(0)
>>> net = HardExperts()
>>> model = DiscreteModel(net.layers())
>>> optimiser = torch.optim.Adam(net.parameters(), lr=0.05)
>>> x = torch.linspace(-1, 1, 64)[:, None]
>>> losses = []
>>> for step in range(200):
...     answer = gradient(model, net.minus_loss, x)
...     optimiser.zero_grad()
...     answer.surrogate.mean().backward()
...     optimiser.step()
...     losses.append(-answer.f.mean().item())
>>> sum(losses[-20:]) < 0.1 * sum(losses[:20])
True
"""

from __future__ import annotations

from releg.discrete.estimate import Gradient, gradient
from releg.discrete.layers import Continuous, Layer, Node, Values
from releg.discrete.model import DiscreteModel, Sample

__all__ = ["Continuous", "DiscreteModel", "Gradient", "Layer", "Node", "Sample", "Values", "gradient"]
