"""The floor of a step: only the matrix products that every implementation needs."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

HIDDEN = 100  # units of LR's baseline nets
FLOOR_OF = {"lr": "floor_lr", "pyro_lr": "floor_lr"}  # all others: floor_crn


def floor_of(estimator: str) -> str:
    """The name of the floor that an estimator is compared with."""
    return FLOOR_OF.get(estimator, "floor_crn")


def make_floors(
    data_size: int, layers: tuple[int, ...], batch_size: int, names: list[str], device: str = "cpu"
) -> dict[str, Floor]:
    """The floors that these estimators need, by name."""
    needed = dict.fromkeys(floor_of(name) for name in names)
    return {floor: Floor(data_size, layers, batch_size, floor == "floor_lr", device) for floor in needed}


class Floor:
    """Logits of every conditional and gradients of all weights, of both nets and, for LR, of its baseline nets.

    Args:
        data_size: numbers per image.
        layers: units per layer, shallow first.
        batch_size: rows of every product.
        baselines: whether the products of LR's baseline nets are included.
        device: where they are computed.
    """

    def __init__(
        self, data_size: int, layers: tuple[int, ...], batch_size: int, baselines: bool, device: str = "cpu"
    ) -> None:
        generator = torch.Generator().manual_seed(0)
        widths = [data_size, *layers]
        pairs = [*pairwise(widths), *((above, below) for below, above in pairwise(widths))]
        if baselines:
            pairs += [(width, HIDDEN) for width in widths[:-1]]
        self.parts: dict[str, float] = {}
        self._products = [
            tuple(torch.rand(shape, generator=generator).to(device) for shape in self._shapes(batch_size, *pair))
            for pair in pairs
        ]

    @staticmethod
    def _shapes(rows: int, below: int, above: int) -> tuple[tuple[int, ...], ...]:
        """Inputs, weights, biases and gradients by the logits of one linear layer."""
        return (rows, below), (above, below), (above,), (rows, above)

    def restore(self) -> None:
        """Do nothing: a floor has no weights to reset."""

    def __call__(self, x: Tensor) -> None:
        """Compute all products of one step; the values of x do not matter."""
        for inputs, weight, bias, gradient in self._products:
            torch.addmm(bias, inputs, weight.T)
            torch.mm(gradient.T, inputs)
