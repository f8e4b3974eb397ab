"""The CPU kernel's memory: one flat array with everything it reads, allocated once and filled anew at every call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
import torch
from torch import Tensor

from releg.kernels.cpu import layout as columns
from releg.kernels.cpu.hits import LINE
from releg.kernels.cpu.layout import LAYER_COLUMNS, LINK_COLUMNS, Layout, Scratch
from releg.kernels.cpu.simd import BLOCK
from releg.sbn import Path, SigmoidBeliefNet

SLOTS, MANY_SLOTS = 2, 8  # rows that a worker has in hand at once: what it reads of the weights serves all of them
LARGE = 4 << 20  # bytes of one weight matrix from which on it pays to have many


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


def slots_for(shape: Shape) -> int:
    """Many where the weights are too large for the caches, if that leaves every worker several groups of rows."""
    sizes = (shape.data_size, *shape.layers)
    largest = max(a * b for a, b in pairwise(sizes)) * shape.dtype.itemsize
    enough = shape.rows // (4 * shape.workers)
    return max(SLOTS, min(MANY_SLOTS, enough)) if largest > LARGE else SLOTS


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
        # a layer has as many sets as there are units above it, at most: each unit or set is followed by one
        self.most = list(accumulate(shape.layers[:-1], initial=0))
        self.members = self._place_members()
        self.slots = slots_for(shape)
        self.scratch = [self._scratch() for _ in range(shape.workers * self.slots)]
        self.counters = np.zeros(2, dtype=np.int64)  # the next row, the next worker
        self.sources = np.zeros((2 * depth, columns.SOURCE_COLUMNS), dtype=np.int64)
        self.match = [self.views[int(at)] for at in self.links[:-1, columns.MATCH]]
        self.margins = [self.views[int(at)] for at in self.layers[:, columns.MARGINS]]
        self.block = self._block()

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
        row[columns.TOP] = store.reserve(1, units + 1)
        row[columns.SPREAD] = store.reserve(1, units + 1)
        row[columns.TOTAL] = store.reserve(1, units)
        row[columns.LOGITS] = store.reserve(rows, targets, stride)
        row[columns.STAY] = store.reserve(rows, targets, stride, padding=1.0)
        row[columns.MOVE] = store.reserve(rows, targets, stride)
        row[columns.MATCH] = store.reserve(rows, units)

    def _place_members(self) -> int:
        """Members of sets are needed until the next layer is done: one half for even layers, one for odd ones."""
        needed = [sets * size for sets, size in zip(self.most, self.shape.layers, strict=True)]
        self.layers[1::2, columns.MEMBERS] = max(needed[::2])
        return max(needed[::2]) + max(needed[1::2], default=0)

    def _scratch(self) -> Scratch:
        layers, most = self.shape.layers, self.most
        widest, units, depth, sets = max(layers), sum(layers), len(layers), sum(most)
        nodes = units + 1 + sets
        floats = [units, nodes, widest, widest, widest + 3]
        found = max((a * (round_up(b, BLOCK) + LINE) for a, b in pairwise(layers)), default=0)
        integers = [2 * (widest + 4), nodes, widest, found, self.members, 1 << (2 * max(most)).bit_length(), sets, sets]
        masks = np.zeros(round_up(widest, 2 * BLOCK) // BLOCK + 2, dtype=np.uint32)
        arrays = [
            *[np.zeros(size) for size in floats],
            *[np.zeros(size, dtype=np.int32) for size in integers],
            *[np.zeros(size, dtype=np.int64) for size in (widest + 3, widest + 8, depth + 1)],
            np.random.default_rng(0).integers(2**64, size=widest, dtype=np.uint64),  # marks
            *[np.zeros(size, dtype=np.uint64) for size in (widest, sets)],
            masks,
            masks.view(np.uint64),  # words
        ]
        return Scratch._make(arrays)

    def _block(self) -> np.ndarray:
        """What the kernel is called with; PHASE, OUT, ROWS and ENTROPY change from call to call."""
        fields = [number for scratch in self.scratch for a in scratch for number in (a.ctypes.data, a.size)]
        block = np.array([*[0] * columns.FIELDS, *fields], dtype=np.int64)
        block[columns.DEPTH], block[columns.WORKERS] = len(self.shape.layers), self.shape.workers
        block[columns.SLOTS] = self.slots
        block[columns.STORE], block[columns.STORE_SIZE] = self.array.ctypes.data, self.array.size
        tables = {
            columns.LINKS: self.links,
            columns.LAYERS: self.layers,
            columns.SPARE: self.layout.spare,
            columns.SOURCES: self.sources,
            columns.COUNTERS: self.counters,
        }
        for at, table in tables.items():
            block[at] = table.ctypes.data
        return block

    def call(self, phase: int, out: Tensor, rows: int, entropy: bool) -> int:
        """The address to call the kernel with; out (sum of sizes * rows,) takes the answer of phase 1."""
        self.counters[:] = 0
        for column, value in zip((columns.PHASE, columns.ROWS), (phase, rows), strict=True):
            self.block[column] = value
        self.block[columns.OUT], self.block[columns.ENTROPY] = out.data_ptr(), entropy
        return self.block.ctypes.data

    def set_weights(self, model: SigmoidBeliefNet) -> list[Tensor]:
        """Where the weight matrices are; they must stay there, so the tensors to keep are returned."""
        weights = [linear.weight.detach().contiguous() for linear in (*model.generative, *model.inference)]
        depth = len(self.shape.layers)
        for layer in range(depth):
            self.sources[2 * layer, columns.LINK_WEIGHT] = weights[layer].data_ptr()
            if layer > 0:
                self.sources[2 * layer - 1, columns.LINK_WEIGHT] = weights[depth + layer].data_ptr()
        self.views[int(self.layers[-1, columns.NEXT])][0].copy_(model.prior_logits)
        return weights

    def set_rows(
        self, path: Path, generative_logits: Sequence[Tensor], rows: slice, weights: list[Tensor]
    ) -> list[Tensor]:
        """Where these rows of the path are, and products of their values with the weights; returns what to keep."""
        depth, below, kept = len(self.shape.layers), path.parents(), []
        for layer in range(depth):
            own, z, r = (
                values[layer].detach()[rows].contiguous() for values in (path.logits, path.z, generative_logits)
            )
            kept += [own, z, r]
            self.sources[layer, columns.LAYER_VALUES] = z.data_ptr()
            self.sources[layer, columns.LAYER_LOGITS] = own.data_ptr()
            self.sources[2 * layer, columns.LINK_LOGITS] = r.data_ptr()
            torch.mm(below[layer][rows], weights[layer], out=self.match[2 * layer][: len(z)])
            if layer > 0:
                self.sources[2 * layer - 1, columns.LINK_LOGITS] = own.data_ptr()
                torch.mm(z, weights[depth + layer], out=self.match[2 * layer - 1][: len(z)])
                torch.logit(path.noise[layer][rows], out=self.margins[layer][: len(z)])
        return kept
