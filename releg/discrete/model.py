"""The directed model: sampling from noise, and the same with one unit set to another state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from releg.discrete.layers import Layer, Reparameterisation, Values, inverse_cdf


@dataclass(frozen=True)
class Sample:
    """One simulation of N rows, as the user sees the layers."""

    z: Values  # (N, units) per layer, (N,) per node
    logits: Values  # (N, units) or (N, units, states) per layer, (N, states) per node; part of the autograd graph


class DiscreteModel:
    """q(z | x) = prod_l q(z_l | x, parents of z_l). Given the noise, everything here is deterministic.

    Args:
        layers: `Layer`s and `Node`s, parents before children.
        reparameterisation: `inverse_cdf` or `gumbel_max`; both are unbiased; they differ in the noise that flips share.
    """

    def __init__(self, layers: Sequence[Layer], reparameterisation: Reparameterisation = inverse_cdf) -> None:
        _check_graph(layers)
        self.layers = tuple(layers)
        self.reparameterisation = reparameterisation
        self.descendants = {
            layer.name: _descendants(layer, self.layers[i + 1 :]) for i, layer in enumerate(self.layers)
        }

    def draw_noise(self, x: Tensor, generator: torch.Generator | None = None) -> Values:
        """Uniform noise for one simulation per row of x, in the precision of x if x is floating-point."""
        return {
            layer.name: torch.rand(
                self._noise_shape(layer, x), generator=generator, dtype=floating_type(x), device=x.device
            )
            for layer in self.layers
        }

    def sample(self, x: Tensor, noise: Mapping[str, Tensor]) -> Sample:
        """z = g(x, noise): ancestral sampling of all layers."""
        self.check_noise(x, noise)
        z: Values = {}
        logits: Values = {}
        for layer in self.layers:
            wide = layer.evaluate(x, z)
            logits[layer.name] = layer.narrow(wide)
            z[layer.name] = layer.narrow(self._draw(layer, x, wide.detach(), noise[layer.name]))
        return Sample(z, logits)

    @torch.no_grad()
    def clamp(
        self, x: Tensor, noise: Mapping[str, Tensor], z: Mapping[str, Tensor], name: str, unit: int, state: int
    ) -> Values:
        """z with one unit of layer `name` set to `state`, its descendants simulated anew from the same noise.

        Other layers keep their values. This is line 4 of Algorithm 1 as printed; `releg.discrete.flips` batches it.
        """
        flipped = next(layer for layer in self.layers if layer.name == name)
        values = flipped.widen(z[name]).clone()
        values[:, unit] = state
        clamped = {**z, name: flipped.narrow(values)}
        for layer in self.descendants[name]:
            logits = layer.evaluate(x, clamped)
            clamped[layer.name] = layer.narrow(self._draw(layer, x, logits, noise[layer.name]))
        return clamped

    def simulate_again(
        self, layer: Layer, x: Tensor, z: Mapping[str, Tensor], noise: Mapping[str, Tensor], row: Tensor
    ) -> Tensor:
        """New values (M, units) of a layer given M rows of x and of its parents in z, with the noise of these rows."""
        return self._draw(layer, x, layer.evaluate(x, z), noise[layer.name].index_select(0, row))

    def _draw(self, layer: Layer, x: Tensor, logits: Tensor, noise: Tensor) -> Tensor:
        return self.reparameterisation.sample(layer, logits, layer.widen(noise), floating_type(x))

    def check_noise(self, x: Tensor, noise: Mapping[str, Tensor]) -> None:
        """Raise ValueError unless noise has uniform numbers of the right shape for every layer and every row of x."""
        hint = "draw it with model.draw_noise(x)"
        if x.dim() == 0 or len(x) == 0:
            raise ValueError(f"x has shape {tuple(x.shape)}, expected (N, ...), N >= 1; give one row per simulation")
        names = [layer.name for layer in self.layers]
        if set(noise) != set(names):
            raise ValueError(f"noise is for {sorted(noise)}, expected {sorted(names)}; {hint}")
        for layer in self.layers:
            check_uniform(noise[layer.name], self._noise_shape(layer, x), f"noise['{layer.name}']", hint)

    def _noise_shape(self, layer: Layer, x: Tensor) -> tuple[int, ...]:
        one_unit = self.reparameterisation.noise_shape(layer.states)
        return tuple(layer.narrow(torch.empty(len(x), layer.units, *one_unit, device="meta")).shape)


def floating_type(x: Tensor) -> torch.dtype:
    """The type of x, or the default type if x holds integers."""
    return x.dtype if x.is_floating_point() else torch.get_default_dtype()


def check_uniform(values: Tensor, shape: tuple[int, ...], name: str, hint: str) -> None:
    """Raise ValueError unless the values have that shape and lie in [0, 1)."""
    if values.shape != shape:
        raise ValueError(f"{name} has shape {tuple(values.shape)}, expected {shape}; {hint}")
    low, high = torch.aminmax(values)
    if not bool((low >= 0) & (high < 1)):
        raise ValueError(
            f"{name} ranges from {low.item():g} to {high.item():g}, expected uniform numbers in [0, 1); {hint}"
        )


def _descendants(layer: Layer, later: Sequence[Layer]) -> tuple[Layer, ...]:
    """The layers that depend on `layer`, directly or not, in topological order."""
    family = {layer.name}
    for other in later:
        if not family.isdisjoint(other.parents):
            family.add(other.name)
    return tuple(other for other in later if other.name in family)


def _check_graph(layers: Sequence[Layer]) -> None:
    if not layers:
        raise ValueError("layers is empty, expected at least one; give a list of Layer(name, parents, logits, units)")
    names = [layer.name for layer in layers]
    for position, layer in enumerate(layers):
        if layer.name in names[:position]:
            raise ValueError(f"two layers are called '{layer.name}', expected distinct names; rename one of them")
        for parent in layer.parents:
            if parent == layer.name:
                raise ValueError(
                    f"{layer} has the parent '{parent}', itself, expected layers before it; its units are independent "
                    "given the parents: split it into several"
                )
            if parent not in names[:position]:
                fix = "reorder the layers (a cycle has no order)" if parent in names else "add it, or correct the name"
                raise ValueError(
                    f"{layer} has the parent '{parent}', which is not among the layers before it, "
                    f"expected one of {names[:position]}; {fix}"
                )
