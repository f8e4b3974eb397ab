"""The CPU kernel's memory: one flat array with everything it reads, allocated once and filled anew at every call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from releg.kernels import cpu_layout as columns
from releg.kernels.cpu_layout import LAYER_COLUMNS, LINK_COLUMNS, Layout, Scratch
from releg.kernels.simd import BLOCK
from releg.sbn import Path, SigmoidBeliefNet

SETS = 4096  # changed sets remembered per row; more are evaluated again
MEMBERS = 16  # per set, on average; beyond, sets are not remembered


def round_up(number: int, multiple: int) -> int:
    """The smallest multiple that is not below number."""
    return -(-number // multiple) * multiple


@dataclass(frozen=True)
class Shape:
    """What the layout depends on."""

    data_size: int
    layers: tuple[int, ...]
    dtype: torch.dtype
    rows: int
    workers: int


class Store:
    """Hands out pieces of one array: first all offsets are counted, then the array exists."""

    def __init__(self) -> None:
        self.size = 0
        self.pieces: list[tuple[int, int, int, int, float]] = []

    def reserve(self, rows: int, columns: int, stride: int | None = None, padding: float = 0.0) -> int:
        """Room for rows of `columns` numbers that start `stride` apart; returns the offset."""
        stride = columns if stride is None else stride
        self.size = round_up(self.size, BLOCK)
        start = self.size
        self.pieces.append((start, rows, columns, stride, padding))
        self.size += rows * stride
        return start

    def allocate(self, dtype: torch.dtype) -> tuple[Tensor, dict[int, Tensor]]:
        """The array, padding filled in, and a (rows, columns) view of every piece by its offset."""
        array = torch.zeros(self.size + BLOCK, dtype=dtype)
        for start, rows, _, stride, padding in self.pieces:
            array[start : start + rows * stride] = padding
        views = {s: array[s : s + r * t].view(r, t)[:, :c] for s, r, c, t, _ in self.pieces}
        return array, views


class Workspace:
    """The store for models and batches of one shape, its layout, and the workers' scratch arrays."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        depth = len(shape.layers)
        self.links = np.zeros((2 * depth, LINK_COLUMNS), dtype=np.int64)
        self.layers = np.zeros((depth, LAYER_COLUMNS), dtype=np.int64)
        store = Store()
        for layer in range(depth):
            self._reserve_layer(store, layer)
        widest = round_up(max(shape.data_size, *shape.layers), BLOCK)
        spare = [[store.reserve(1, widest), store.reserve(1, widest)] for _ in range(shape.workers)]
        ones = store.reserve(1, widest, padding=1.0)
        self.layout = Layout(self.links, self.layers, np.array([*spare, [ones, ones]], dtype=np.int64))
        array, self.views = store.allocate(shape.dtype)
        self.array = array.numpy()
        self.scratch = [self._scratch() for _ in range(shape.workers)]
        self.counter = np.zeros(1, dtype=np.int64)

    def _reserve_layer(self, store: Store, layer: int) -> None:
        shape = self.shape
        below = shape.data_size if layer == 0 else shape.layers[layer - 1]
        size, rows = shape.layers[layer], shape.rows
        width = round_up(size, BLOCK)
        self._reserve_link(store, 2 * layer, size, below)
        row = self.layers[layer]
        row[columns.SIZE], row[columns.WIDTH], row[columns.TABLE] = size, width, sum(shape.layers[:layer])
        row[columns.SIGNS] = store.reserve(rows, size, width)
        if layer == 0:
            row[columns.OWN], row[columns.OWN_STRIDE] = store.reserve(rows, size), size
        else:
            row[columns.MARGINS] = store.reserve(rows, size, width, padding=torch.inf)
            row[columns.THRESHOLDS] = store.reserve(rows, size, width, padding=torch.inf)
            row[columns.REACH] = store.reserve(1, size)
            above = self.layers[layer - 1]
            above[columns.ACROSS] = store.reserve(size, below, int(above[columns.WIDTH]))
            above[columns.CROSS] = store.reserve(size, below, int(above[columns.WIDTH]))
            above[columns.NEXT], above[columns.NEXT_STRIDE] = self.links[2 * layer, [columns.LOGITS, columns.STRIDE]]
            self._reserve_link(store, 2 * layer - 1, below, size)
            row[columns.OWN], row[columns.OWN_STRIDE] = self.links[2 * layer - 1, [columns.LOGITS, columns.STRIDE]]
        if layer + 1 == len(shape.layers):
            row[columns.NEXT], row[columns.NEXT_STRIDE] = (
                store.reserve(1, size),
                0,
            )  # the prior is the same for all rows

    def _reserve_link(self, store: Store, link: int, units: int, targets: int) -> None:
        rows, stride, row = self.shape.rows, round_up(targets, BLOCK), self.links[link]
        row[columns.UNITS], row[columns.TARGETS], row[columns.STRIDE] = units, targets, stride
        row[columns.PLAIN] = store.reserve(units, targets, stride)
        row[columns.RATIO] = store.reserve(units, targets, stride, padding=1.0)
        row[columns.INVERSE] = store.reserve(units, targets, stride, padding=1.0)
        row[columns.TOP] = store.reserve(1, units)
        row[columns.SPREAD] = store.reserve(1, units)
        row[columns.TOTAL] = store.reserve(1, units)
        row[columns.LOGITS] = store.reserve(rows, targets, stride)
        row[columns.STAY] = store.reserve(rows, targets, stride, padding=1.0)
        row[columns.MOVE] = store.reserve(rows, targets, stride)
        row[columns.MATCH] = store.reserve(rows, units)

    def _scratch(self) -> Scratch:
        layers = self.shape.layers
        widest, depth = max(layers), len(layers)
        hits = max((a * b for a, b in pairwise(layers)), default=1)
        sets = min(SETS, sum(layers) * depth)
        arena = MEMBERS * sets + (depth + 1) * widest
        floats = [sum(layers), sum(layers), widest, widest, depth, sets]
        integers = [widest + 3, widest, hits, hits, 1 << (2 * sets).bit_length(), (sets, 4), arena, depth]
        arrays = [
            *[np.zeros(size) for size in floats],
            *[np.zeros(size, dtype=np.int32) for size in integers],
            np.zeros((2, widest + 3), dtype=np.int64),  # rows
            np.zeros(round_up(widest, BLOCK) // BLOCK, dtype=np.uint64),  # masks
            np.zeros(2, dtype=np.int64),  # used
        ]
        scratch = Scratch._make(arrays)
        scratch.slots[:] = -1
        return scratch

    def set_weights(self, model: SigmoidBeliefNet, entropy: bool) -> None:
        """Transposes, exponentials and bounds of all weight matrices."""
        for layer, linear in enumerate(model.generative):
            self._set_link(2 * layer, linear.weight)
        for layer, linear in enumerate(model.inference):
            if layer > 0:
                self._set_link(2 * layer - 1, linear.weight)
                across = self.views[int(self.layers[layer - 1, columns.ACROSS])].copy_(linear.weight)
                torch.amax(across.abs(), 1, out=self.views[int(self.layers[layer, columns.REACH])][0])
                cross = self.views[int(self.layers[layer - 1, columns.CROSS])]
                torch.sub(self.views[int(self.links[2 * layer, columns.PLAIN])], 0 if entropy else across, out=cross)
        self.views[int(self.layers[-1, columns.NEXT])][0].copy_(model.prior_logits)

    def _set_link(self, link: int, weight: Tensor) -> None:
        ratio = self.views[int(self.links[link, columns.RATIO])]
        plain = self.views[int(self.links[link, columns.PLAIN])].copy_(weight.T)  # (units, targets)
        torch.exp(plain, out=ratio)
        if link > 0:  # sets are never flipped in the shallowest layer
            torch.reciprocal(ratio, out=self.views[int(self.links[link, columns.INVERSE])])
        magnitude = plain.abs()
        torch.amax(magnitude, 1, out=self.views[int(self.links[link, columns.TOP])][0])
        torch.sum(magnitude, 1, out=self.views[int(self.links[link, columns.SPREAD])][0])
        torch.sum(plain, 1, out=self.views[int(self.links[link, columns.TOTAL])][0])

    def set_rows(self, model: SigmoidBeliefNet, path: Path, generative_logits: Sequence[Tensor], rows: slice) -> int:
        """Tables of these rows of the path; returns how many there are."""
        below = path.parents()
        count = len(path.x[rows])
        for layer, z in enumerate(path.z):
            own, noise = path.logits[layer].detach()[rows], path.noise[layer][rows]
            signs = self.views[int(self.layers[layer, columns.SIGNS])][:count]
            torch.add(torch.ones((), dtype=z.dtype), z[rows], alpha=-2, out=signs)
            self._set_tables(
                2 * layer, generative_logits[layer][rows], below[layer][rows], model.generative[layer].weight
            )
            if layer == 0:
                self.views[int(self.layers[0, columns.OWN])][:count].copy_(own)
                continue
            self._set_tables(2 * layer - 1, own, z[rows], model.inference[layer].weight)
            margins = self.views[int(self.layers[layer, columns.MARGINS])][:count]
            # at least one rounding: a unit whose noise lies on its threshold must not change when its logit does not
            torch.logit(noise, out=margins).sub_(own).mul_(signs).clamp_(min=torch.finfo(z.dtype).eps)
            thresholds = self.views[int(self.layers[layer, columns.THRESHOLDS])][:count]
            torch.mul(signs, margins, out=thresholds).exp_().mul_(signs)
        return count

    def _set_tables(self, link: int, logits: Tensor, values: Tensor, weight: Tensor) -> None:
        count = len(logits)
        table = {c: self.views[int(self.links[link, c])][:count] for c in TABLES}
        table[columns.LOGITS].copy_(logits)
        torch.sigmoid(logits, out=table[columns.MOVE])
        torch.neg(logits, out=table[columns.STAY]).sigmoid_()  # not 1 - sigmoid: exact when saturated
        torch.mm(values, weight, out=table[columns.MATCH])


TABLES = (columns.LOGITS, columns.STAY, columns.MOVE, columns.MATCH)
