"""The directed model: sampling from noise, and the same with one layer set to other values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from releg.discrete.layers import Continuous, Layer, Values
from releg.functional.variables import check_uniform, sample

Draw = Callable[[Tensor, Tensor], Tensor]  # logits (N, units, ...) in the graph and noise to z with a derivative


@dataclass(frozen=True)
class Sample:
    """One simulation of N rows, as the user sees the layers."""

    z: Values  # (N, units) per layer, (N, units, states) if one-hot, (N,) per node, (N, ...) if continuous
    logits: Values  # (N, units) or (N, units, states) per layer, (N, states) per node; part of the autograd graph


class DiscreteModel:
    """q(z | x) = prod_l q(z_l | x, parents of z_l). Given the noise, everything here is deterministic.

    Args:
        layers: `Layer`s, `Node`s and `Continuous` layers, parents before children.
    """

    def __init__(self, layers: Sequence[Layer | Continuous]) -> None:
        _check_graph(layers)
        self.layers = tuple(layers)
        self.descendants = {
            layer.name: _descendants(layer, self.layers[i + 1 :]) for i, layer in enumerate(self.layers)
        }
        self.is_checked = False  # whether `gradient` found that f and the layers work row by row

    @property
    def discrete(self) -> tuple[Layer, ...]:
        """All layers but the continuous ones."""
        return tuple(layer for layer in self.layers if isinstance(layer, Layer))

    def draw_noise(self, x: Tensor, generator: torch.Generator | None = None, after: str | None = None) -> Values:
        """Noise for one simulation per row of x, in the precision of x if x is floating-point.

        Args:
            x: (N, ...).
            generator: of the numbers.
            after: only for the layers that depend on this one.
        """
        like = torch.empty(0, dtype=floating_type(x), device=x.device)
        noise = {}
        for layer in self.layers if after is None else self.descendants[after]:
            if isinstance(layer, Continuous):
                noise[layer.name] = layer.draw((len(x), layer.units), generator, like)
            else:
                shape = noise_shape(layer, x)
                noise[layer.name] = torch.rand(shape, generator=generator, dtype=like.dtype, device=like.device)
        return noise

    def sample(self, x: Tensor, noise: Mapping[str, Tensor], relaxed: Mapping[str, Draw] | None = None) -> Sample:
        """z = g(x, noise): ancestral sampling of all layers.

        Args:
            x: (N, ...).
            noise: from draw_noise.
            relaxed: layers drawn by functions whose z has a derivative by the logits.
        """
        self.check_noise(x, noise)
        z: Values = {}
        logits: Values = {}
        for layer in self.layers:
            if isinstance(layer, Continuous):
                z[layer.name] = layer.evaluate(x, z, noise[layer.name])
                continue
            wide = layer.evaluate(x, z)
            logits[layer.name] = layer.narrow(wide)
            if relaxed and layer.name in relaxed:
                z[layer.name] = layer.narrow(relaxed[layer.name](wide, layer.widen(noise[layer.name])))
            else:
                z[layer.name] = self._draw(layer, x, wide.detach(), noise[layer.name])
        return Sample(z, logits)

    @torch.no_grad()
    def clamp(
        self, x: Tensor, noise: Mapping[str, Tensor], z: Mapping[str, Tensor], name: str, unit: int, state: int
    ) -> Values:
        """z with one unit of layer `name` set to `state`, its descendants simulated anew from the same noise.

        Other layers keep their values. This is line 4 of Algorithm 1 as printed; `releg.discrete.flips` batches it.
        """
        flipped = next(layer for layer in self.discrete if layer.name == name)
        states = flipped.read(z[name]).clone()
        states[:, unit] = state
        return self.with_layer(name, flipped.show(states, floating_type(x)), x, z, noise)

    def with_layer(
        self, name: str, values: Tensor, x: Tensor, z: Mapping[str, Tensor], noise: Mapping[str, Tensor]
    ) -> Values:
        """z with these values of a layer, its descendants simulated from the noise; other layers keep theirs."""
        changed = {**z, name: values}
        for layer in self.descendants[name]:
            if isinstance(layer, Continuous):
                changed[layer.name] = layer.evaluate(x, changed, noise[layer.name])
            else:
                changed[layer.name] = self._draw(layer, x, layer.evaluate(x, changed).detach(), noise[layer.name])
        return changed

    def _draw(self, layer: Layer, x: Tensor, logits: Tensor, noise: Tensor) -> Tensor:
        return layer.show(sample(logits, layer.widen(noise)), floating_type(x))

    def check_noise(self, x: Tensor, noise: Mapping[str, Tensor]) -> None:
        """Raise ValueError unless noise has numbers of the right shape for every layer and every row of x."""
        hint = "draw it with model.draw_noise(x)"
        if x.dim() == 0 or len(x) == 0:
            raise ValueError(f"x has shape {tuple(x.shape)}, expected (N, ...), N >= 1; give one row per simulation")
        names = [layer.name for layer in self.layers]
        if set(noise) != set(names):
            raise ValueError(f"noise is for {sorted(noise)}, expected {sorted(names)}; {hint}")
        for layer in self.discrete:
            check_uniform(noise[layer.name], noise_shape(layer, x), f"noise['{layer.name}']", hint)
        for name in names:
            if len(noise[name]) != len(x):
                raise ValueError(f"noise['{name}'] has {len(noise[name])} rows, expected {len(x)}; {hint}")


def noise_shape(layer: Layer, x: Tensor) -> tuple[int, ...]:
    """One number for each unit of each row: (N, units), or (N,) for a node."""
    return tuple(layer.narrow(torch.empty(len(x), layer.units, device="meta")).shape)


def floating_type(x: Tensor) -> torch.dtype:
    """The type of x, or the default type if x holds integers."""
    return x.dtype if x.is_floating_point() else torch.get_default_dtype()


def _descendants(layer: Layer | Continuous, later: Sequence[Layer | Continuous]) -> tuple[Layer | Continuous, ...]:
    """The layers that depend on `layer`, directly or not, in topological order."""
    family = {layer.name}
    for other in later:
        if not family.isdisjoint(other.parents):
            family.add(other.name)
    return tuple(other for other in later if other.name in family)


def _check_graph(layers: Sequence[Layer | Continuous]) -> None:
    if not layers:
        raise ValueError("layers is empty, expected at least one; give a list of Layer(name, parents, logits, units)")
    names = [layer.name for layer in layers]
    for position, layer in enumerate(layers):
        if layer.name in names[:position]:
            raise ValueError(f"two layers are called '{layer.name}', expected distinct names; rename one of them")
        for parent in layer.parents:
            if parent not in names[:position]:
                fix = "reorder the layers (a cycle has no order)" if parent in names else "add it, or correct the name"
                raise ValueError(
                    f"{layer} has the parent '{parent}', which is not among the layers before it, "
                    f"expected one of {names[:position]}; {fix}"
                )
