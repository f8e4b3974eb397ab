"""The floor of a step: only the matrix products that every implementation needs."""

from __future__ import annotations

from itertools import pairwise

import torch

HIDDEN = 100  # units of LR's baseline nets


class Floor:
    """Logits of every conditional and gradients of all weights, of both nets and, for LR, of its baseline nets.

    Args:
        data_size: numbers per image.
        layers: units per layer, shallow first.
        rows: of every product.
        baselines: whether the products of LR's baseline nets are included.
        device: where they are computed.
    """

    def __init__(
        self, data_size: int, layers: tuple[int, ...], rows: int, baselines: bool, device: str = "cpu"
    ) -> None:
        from lightning_modules.matrix_products import multiply  # loads the compiler

        self._multiply = multiply
        generator = torch.Generator().manual_seed(0)
        widths = [data_size, *layers]
        pairs = [*pairwise(widths), *((above, below) for below, above in pairwise(widths))]
        if baselines:
            pairs += [(width, HIDDEN) for width in widths[:-1]]
        # inputs, weights, biases and gradients by the logits of one linear layer
        shapes = [((rows, below), (above, below), (above,), (rows, above)) for below, above in pairs]
        self._products = [tuple(torch.rand(size, generator=generator).to(device) for size in four) for four in shapes]

    def restore(self) -> None:
        """Do nothing: a floor has no weights to restore."""

    def take(self, steps: int) -> int:
        """Compute all products of that many steps."""
        for _ in range(steps):
            for inputs, weight, bias, gradient in self._products:
                self._multiply(inputs, weight.T, bias)
                self._multiply(gradient.T, inputs)
        return steps
