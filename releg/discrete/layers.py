"""The variables of a model: layers of discrete units, single nodes, which are layers of one unit, continuous layers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from releg.checks import check_at_least
from releg.functional.variables import check_numbers, check_tensor

Values = dict[str, Tensor]  # by name of the layer
Logits = Callable[[Tensor, Values], Tensor]  # x and the values of the parents, N rows each, to the logits


@dataclass(frozen=True)
class Layer:
    """`units` variables that are independent given x and the parents, with values 0 ... states - 1.

    Two states: `logits(x, values of the parents)` gives (N, units) logits of the means, and the values are (N, units)
    zeros and ones in x's floating type. More states: (N, units, states) unnormalised log-probabilities, and (N, units)
    long values. With `one_hot` logits are (N, units, states) also for two states, and what f and other layers see are
    vectors (N, units, states) in x's floating type. `logits` works row by row: it is called with any number of rows.
    """

    name: str
    parents: Sequence[str]
    logits: Logits
    units: int
    states: int = 2
    one_hot: bool = False

    def __post_init__(self) -> None:
        """Raise ValueError if parents is a bare string, or if there is less than one unit or fewer than two states."""
        check_parents(self)
        check_at_least(f"units of {self}", self.units, 1, "leave out empty layers")
        check_at_least(f"states of {self}", self.states, 2, "leave constants out")

    def __str__(self) -> str:
        return f"layer '{self.name}'"

    @property
    def is_binary(self) -> bool:
        """Whether one logit gives a unit's distribution."""
        return self.states == 2 and not self.one_hot

    def logits_shape(self, rows: int) -> tuple[int, ...]:
        """The shape that `logits` must return for this many rows."""
        return (rows, self.units) if self.is_binary else (rows, self.units, self.states)

    def narrow(self, values: Tensor) -> Tensor:
        """From (N, units, ...) to the shape that the user sees."""
        return values

    def widen(self, values: Tensor) -> Tensor:
        """The inverse of `narrow`."""
        return values

    def show(self, states: Tensor, dtype: torch.dtype) -> Tensor:
        """Values as f and other layers see them, from states (N, units); dtype is that of all but long values."""
        if self.one_hot:
            return self.narrow(torch.nn.functional.one_hot(states.long(), self.states).to(dtype))
        return self.narrow(states.to(dtype) if self.is_binary else states)

    def read(self, values: Tensor) -> Tensor:
        """The inverse of `show`, for the discrete values of one layer: (N, units)."""
        wide = self.widen(values.detach())
        return wide.argmax(-1) if self.one_hot else wide

    def evaluate(self, x: Tensor, z: Mapping[str, Tensor]) -> Tensor:
        """Checked logits given the parents in z, which are as the user sees them: (N, units) or (N, units, states)."""
        logits = self.logits(x, copies(z, self.parents))
        check_tensor(logits, f"logits of {self}")
        expected = self.logits_shape(len(x))
        if logits.shape != expected:
            raise ValueError(
                f"logits of {self} have shape {tuple(logits.shape)}, expected {expected}; "
                "give one row per row of x: repeat constants by expand(len(x), -1)"
            )
        check_numbers(logits, f"logits of {self}", not self.is_binary)
        return self.widen(logits)


@dataclass(frozen=True, init=False)
class Node(Layer):
    """A layer of one unit without the axis of units: values are (N,) long, logits (N, states), also for two states.

    Long values index tables, and arithmetic with floating-point tensors promotes them.
    """

    def __init__(
        self, name: str, parents: Sequence[str], logits: Logits, states: int = 2, one_hot: bool = False
    ) -> None:
        super().__init__(name, parents, logits, 1, states, one_hot)

    def __str__(self) -> str:
        return f"node '{self.name}'"

    @property
    def is_binary(self) -> bool:
        """A node has a logit for every state."""
        return False

    def logits_shape(self, rows: int) -> tuple[int, ...]:
        """One number per state."""
        return (rows, self.states)

    def narrow(self, values: Tensor) -> Tensor:
        """Drop the axis of units."""
        return values.squeeze(1)

    def widen(self, values: Tensor) -> Tensor:
        """Add the axis of units."""
        return values.unsqueeze(1)


def standard_normal(shape: tuple[int, ...], generator: torch.Generator | None, like: Tensor) -> Tensor:
    """Noise of a continuous layer, in the type and on the device of `like`."""
    return torch.randn(shape, generator=generator, dtype=like.dtype, device=like.device)


@dataclass(frozen=True)
class Continuous:
    """Reparameterised variables: `value(x, values of the parents, noise)` is differentiable and gives (N, ...).

    The gradient of their parameters goes through f and through the layers after them. So where f contains -log q of
    these variables, do not detach it. `value` works row by row: it is called with any number of rows.

    Args:
        name: of the layer.
        parents: names of layers before it.
        value: of x, the parents' values and the noise, N rows each.
        units: the noise has shape (N, units).
        draw: the noise, from its shape, a generator and a tensor whose type and device it gets.
    """

    name: str
    parents: Sequence[str]
    value: Callable[[Tensor, Values, Tensor], Tensor]
    units: int
    draw: Callable[[tuple[int, ...], torch.Generator | None, Tensor], Tensor] = standard_normal

    def __post_init__(self) -> None:
        """Raise ValueError if parents is a bare string."""
        check_parents(self)

    def __str__(self) -> str:
        return f"continuous layer '{self.name}'"

    def evaluate(self, x: Tensor, z: Mapping[str, Tensor], noise: Tensor) -> Tensor:
        """Checked values given the noise and the parents in z."""
        values = self.value(x, copies(z, self.parents), noise.clone())
        if values.shape[:1] != (len(x),) or not bool(torch.isfinite(values).all()):
            raise ValueError(
                f"values of {self} have shape {tuple(values.shape)} and lie between {values.min().item():g} and "
                f"{values.max().item():g}, expected {len(x)} rows of finite numbers; check its function"
            )
        return values


def copies(z: Mapping[str, Tensor], names: Iterable[str]) -> Values:
    """Values of some layers for a user's function, which may change them in place (but not x)."""
    return {name: z[name].clone() for name in names}


def check_parents(layer: Layer | Continuous) -> None:
    """Raise ValueError if parents is a bare string."""
    if isinstance(layer.parents, str):
        raise ValueError(
            f"parents of {layer} is the string '{layer.parents}', expected a sequence of names; "
            f"write ('{layer.parents}',)"
        )
