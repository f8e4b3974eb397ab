"""Where things are in the CPU kernel's memory: records of sizes and addresses, and the arrays behind them.

The arrays are allocated once for models and batches of one shape, and filled anew at every call. An array "per slot"
has one row for each row of the path that a worker is processing. Numbers are float32 or float64, like the model,
unless another type is named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

TILE = 16  # units whose factors are multiplied together: two vectors
ABREAST = 5  # rows whose factors are multiplied together
BLOCK = 32  # targets of a set of units that are multiplied together: four vectors, one bit each in half a word
WORD = 64  # bits of a mask's word
GROUP = 8  # targets between two points at which a product may be cut
ROWS_IN_HAND = 25  # rows for which a worker reads the weights once: whole fives, see ABREAST
LINE = 64  # bytes of a cache line, on which arrays begin
ARENA = 32 << 20  # bytes asked for at once: of so many, numpy asks for large pages; unused ones cost nothing
Address = np.int64


def _record(**fields: Any) -> np.dtype:
    return np.dtype(list(fields.items()), align=True)


LINK = _record(  # 2 l: from layer l to what it generates; 2 l + 1: from layer l to the next deeper one
    units=np.int64,
    targets=np.int64,
    stride=np.int64,  # of rows with one number per target: targets rounded up to whole blocks
    padded=np.int64,  # targets rounded up to whole groups
    weights=Address,  # torch's (targets, units) w
    logits_of=Address,  # torch's (rows, targets) r, of the targets' distribution
    values_of=Address,  # torch's (rows, targets) values of the targets
    tiles=Address,  # (tiles, padded, TILE) w, 0 behind the last unit and the last target
    slopes=Address,  # (tiles, padded, TILE) tanh(w / 2); 0 for steep weights
    cuts=Address,  # (tiles, padded / GROUP + 1) int32: how many chunks, then where each of them ends
    half=Address,  # (units,) float64 sum of w / 2, without steep weights
    level=Address,  # (units,) float64 sum of log cosh(w / 2), without steep weights
    steep=Address,  # (units, padded) int32 targets of the steep weights
    steep_count=Address,  # (units,) int32 how many these are
    steep_ratio=Address,  # (units, padded) exp(w) of these
    top=Address,  # (units,) largest |w|
    spread=Address,  # (units,) sum of |w|
    plain=Address,  # (units, stride) w; like `ratio`, for sets of units
    ratio=Address,  # (units, 2, ratio_stride) exp(w), exp(-w)
    ratio_stride=np.int64,  # of rows of ratios: those of both links of a layer lie side by side
    largest_top=np.float64,
    largest_spread=np.float64,
    logits=Address,  # (per slot, stride) r
    stay=Address,  # (per slot, stride) sigmoid(-r)
    move=Address,  # (per slot, stride) sigmoid(r)
    lean=Address,  # (per slot, stride) tanh(r / 2)
    turn=Address,  # (per slot, stride) s * margin of the targets: a change of the logit beyond it changes the target
    turn_ratio=Address,  # (per slot, stride) exp(turn)
    downward=Address,  # (per slot, stride / BLOCK) uint32 the targets that change if their logit sinks, one bit each
    chosen=Address,  # (per slot, stride) int32 targets whose value is 1
    chosen_count=Address,  # (per slot,) int64 how many these are
)
LAYER = _record(
    size=np.int64,
    width=np.int64,  # of rows with one number per unit: size rounded up to whole blocks
    first=np.int64,  # node of the first unit
    before=np.int64,  # units of the layers above
    members=np.int64,  # where the members of the layer's sets begin in Scratch's members
    noise_of=Address,  # torch's (rows, size)
    own_of=Address,  # torch's (rows, size) logits of q(z[l] | z[l-1])
    next_of=Address,  # torch's (rows, size) logits of p(z[l] | z[l+1])
    values_of=Address,  # torch's (rows, size) z
    signs=Address,  # (per slot, width) s: +1 for a unit that is 0, -1 for one that is 1, 0 behind the last
    margins=Address,  # (per slot, width) how far the logit has to move in the direction of s until the unit changes
    linear=Address,  # (per slot, width) float64 the terms of G that are linear in the flipped units
    change=Address,  # (per slot, width) float64 G of the single units, without what follows
    reach=Address,  # (size,) largest |weight| into the unit
    across=Address,  # (size of the next layer, width) V, inference weights into the next layer
    cross=Address,  # (size of the next layer, width) W.T - V, W generative weights out of it
)
SCRATCH = _record(  # of one worker, for the row it is walking; H is the size of the widest layer
    values=Address,  # (nodes,) float64 G of every node, see walk
    follow=Address,  # (nodes,) int32 the node of the next layer that follows
    products=Address,  # (sets,) float64 factors whose logarithm is still to be added to a set's value
    starts=Address,  # (sets,) int32 where a set's members begin
    sizes=Address,  # (sets,) int32 how many it has
    hashes=Address,  # (sets,) uint64
    origins=Address,  # (sets,) int64 address of the mask with which a set was found
    members=Address,  # (...) int32 members of the sets of two layers
    rows=Address,  # (...) int64 where the ratios of each of these members begin
    firsts=Address,  # (depth + 1,) int64 number of the first set of each layer
    table=Address,  # (last_entry + 1,) int32 hash table: the number of a set, or -1
    last_entry=np.int64,  # one less than a power of two, as large as what is looked up needs
    widest=np.int64,  # H rounded up to whole blocks
    active=Address,  # (H + 65,) int32 units of the next layer that change with some single unit
    active_count=Address,  # (depth,) int64 how many these are in each layer
    every=Address,  # (H + 65,) int32 all units
    limits=Address,  # (3, H) sign, margin and sign * logit of each active unit
    masks=Address,  # (H / 32, H) uint32 the active units that change with each single unit, one bit each
    counts=Address,  # (H,) int32 how many these are
    keys=Address,  # (units or sets of a layer, H / 64) uint64 the units that change with each of them, one bit each
    line=Address,  # (targets,) one row of numbers
    ratios=Address,  # (targets, TILE) exp(w) of a tile of units
    mantissas=Address,  # (ABREAST, TILE) products of a tile and some rows
    powers=Address,  # (ABREAST, TILE) their exponents
    order=Address,  # (sets of a layer,) int32 the sets of a layer, the smallest first
    bins=Address,  # (H + 2,) int32 how many sets there are of each size
    many=Address,  # (H,) int32 units with which several others change
)
CALL = _record(
    phase=np.int64,
    rows=np.int64,
    in_hand=np.int64,
    workers=np.int64,
    depth=np.int64,
    out=Address,  # (sum over layers of rows * size,) f1 - f0
    links=Address,
    layers=Address,
    scratch=Address,
    counters=Address,  # (2,) int64 the next piece of work, the next worker
    multiplier=np.uint64,  # of the hashes
)


@dataclass(frozen=True)
class Shape:
    """What the layout depends on."""

    data_size: int
    layers: tuple[int, ...]
    dtype: torch.dtype
    rows: int
    workers: int

    @property
    def in_hand(self) -> int:
        """Rows that a worker takes at once: all workers get the same number of groups, of about the same size."""
        groups = -(-self.rows // (ROWS_IN_HAND * self.workers)) * self.workers
        return max(1, -(-self.rows // max(1, groups)))


def round_up(number: int, multiple: int) -> int:
    """The smallest multiple that is not below number."""
    return -(-number // multiple) * multiple


class Workspace:
    """All memory of the kernel for models and batches of one shape."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.arenas: list[np.ndarray] = []  # what the addresses point to
        self._free = range(0)  # addresses in the last arena
        depth = len(shape.layers)
        self.number = np.dtype(str(shape.dtype).removeprefix("torch."))
        self.links, self.layers = np.zeros(2 * depth, LINK), np.zeros(depth, LAYER)
        self.scratch = np.zeros(shape.workers, SCRATCH)
        self.counters, self.call = np.zeros(2, np.int64), np.zeros(1, CALL)
        sizes = [shape.data_size, *shape.layers]
        for layer, (below, size) in enumerate(pairwise(sizes)):
            deeper = shape.layers[layer + 1] if layer + 1 < depth else 0
            self._fill_link(self.links[2 * layer], size, below)
            self._fill_link(self.links[2 * layer + 1], size, deeper)
            self._fill_ratios(self.links[2 * layer : 2 * layer + 2])
            self._fill_layer(self.layers[layer], size, deeper)
        self.layers["first"][1:] = np.cumsum(self.layers["width"])[:-1]
        self.layers["before"][1:] = np.cumsum(self.layers["size"])[:-1]
        # a layer has at most as many sets as there are units above it: each unit or set is followed by one
        self.most = list(accumulate(shape.layers[:-1], initial=0))
        self.every = np.arange(round_up(max(shape.layers), BLOCK) + WORD + 1, dtype=np.int32)
        for worker in self.scratch:
            self._fill_scratch(worker)
        self._fill_call()

    def _new(self, count: int, kind: Any) -> int:
        """The address of `count` zeros, aligned to a cache line; the last vector may extend past their end."""
        size = round_up(count * np.dtype(kind).itemsize, LINE) + LINE
        if size > len(self._free):
            arena = np.zeros(max(ARENA, size + LINE), np.uint8)
            self.arenas.append(arena)
            self._free = range(round_up(arena.ctypes.data, LINE), arena.ctypes.data + len(arena))
        address, self._free = self._free.start, self._free[size:]
        return address

    def _fill(self, record: Any, kind: Any, **counts: int) -> None:
        for name, count in counts.items():
            record[name] = self._new(count, kind)

    def _fill_link(self, link: Any, units: int, targets: int) -> None:
        stride, padded, tiled = round_up(targets, BLOCK), round_up(targets, GROUP), round_up(units, TILE)
        link["units"], link["targets"], link["stride"], link["padded"] = units, targets, stride, padded
        slots = self.shape.workers * self.shape.in_hand
        per_slot = dict.fromkeys(("logits", "stay", "move", "lean", "turn", "turn_ratio"), slots * stride)
        self._fill(link, self.number, tiles=tiled * padded, slopes=tiled * padded, top=tiled, spread=tiled, **per_slot)
        self._fill(link, self.number, plain=tiled * stride, steep_ratio=tiled * padded)
        self._fill(link, np.float64, half=tiled, level=tiled)
        self._fill(link, np.int32, cuts=tiled // TILE * (padded // GROUP + 1), chosen=slots * stride)
        self._fill(link, np.int32, steep=tiled * padded, steep_count=tiled)
        self._fill(link, np.int64, chosen_count=slots)
        self._fill(link, np.uint32, downward=slots * stride // BLOCK)

    def _fill_ratios(self, links: Any) -> None:
        """One table for both links of a layer, so that a member of a set has one place in it."""
        stride = links["stride"].sum()
        links["ratio_stride"] = stride
        links["ratio"][0] = self._new(2 * round_up(links["units"][0], TILE) * stride, self.number)
        links["ratio"][1] = links["ratio"][0] + links["stride"][0] * self.number.itemsize

    def _fill_layer(self, layer: Any, size: int, deeper: int) -> None:
        width, slots = round_up(size, BLOCK), self.shape.workers * self.shape.in_hand
        layer["size"], layer["width"] = size, width
        self._fill(layer, self.number, signs=slots * width, margins=slots * width, reach=width)
        self._fill(layer, self.number, across=deeper * width, cross=deeper * width)
        self._fill(layer, np.float64, linear=slots * width, change=slots * width)

    def _fill_scratch(self, worker: Any) -> None:
        layers, sets = self.shape.layers, sum(self.most)
        widest, nodes = round_up(max(layers), BLOCK), int(self.layers["width"].sum()) + 1 + sets
        longest = round_up(max(self.shape.data_size, widest), BLOCK)
        members = self._place_members()
        entries = 2 << (2 * max(self.most)).bit_length()
        words = widest // WORD + 1
        worker["widest"] = widest
        self._fill(worker, np.float64, values=nodes, products=round_up(sets, BLOCK))
        self._fill(worker, np.int32, follow=nodes, starts=sets, sizes=sets, members=members, counts=widest)
        self._fill(worker, np.int32, table=entries, order=max(self.most), bins=widest + 2, many=widest)
        self._fill(worker, np.int32, active=widest + WORD + 1)
        worker["every"] = self.every.ctypes.data
        self._fill(worker, np.int64, rows=members, firsts=len(layers) + 1, active_count=len(layers), origins=sets)
        self._fill(worker, np.uint32, masks=2 * words * widest)
        self._fill(worker, np.uint64, hashes=sets, keys=words * max(self.most))
        self._fill(worker, self.number, limits=3 * widest, line=longest, ratios=longest * TILE)
        self._fill(worker, self.number, mantissas=ABREAST * TILE, powers=ABREAST * TILE)

    def _place_members(self) -> int:
        """Members of sets are needed until the next layer is done: one half for even layers, one for odd ones."""
        needed = [sets * size + GROUP for sets, size in zip(self.most, self.shape.layers, strict=True)]
        self.layers["members"][1::2] = max(needed[::2])
        return max(needed[::2]) + max(needed[1::2], default=0)

    def _fill_call(self) -> None:
        call = self.call[0]
        call["workers"], call["depth"], call["in_hand"] = self.shape.workers, len(self.layers), self.shape.in_hand
        call["multiplier"] = 0x9E3779B97F4A7C15
        for name in ("links", "layers", "scratch", "counters"):
            call[name] = getattr(self, name).ctypes.data

    def prepare_call(self, phase: int, out: Tensor, rows: int) -> int:
        """The address to call the kernel with; out takes the answer of phase 1."""
        self.counters[:] = 0
        call = self.call[0]
        call["phase"], call["out"], call["rows"] = phase, out.data_ptr(), rows
        return self.call.ctypes.data

    def set_weights(self, generative: Sequence[Tensor], inference: Sequence[Tensor]) -> list[Tensor]:
        """Where the weight matrices are; they must stay there, so the tensors to keep are returned."""
        generative, inference = ([plain(weight) for weight in weights] for weights in (generative, inference))
        for layer in range(len(self.layers)):
            self.links["weights"][2 * layer] = generative[layer].data_ptr()
            if layer > 0:
                self.links["weights"][2 * layer - 1] = inference[layer].data_ptr()
        return [*generative, *inference]

    def set_rows(
        self,
        x: Tensor,
        z: Sequence[Tensor],
        noise: Sequence[Tensor],
        logits: Sequence[Tensor],
        generative_logits: Sequence[Tensor],
    ) -> list[Tensor]:
        """Where these rows of the path are; returns the tensors to keep."""
        kept = [plain(values) for values in (x, *z, *noise, *logits, *generative_logits)]
        places, depth = [values.data_ptr() for values in kept], len(self.layers)
        values_of, noise_of = places[: depth + 1], places[depth + 1 : 2 * depth + 1]
        own, generated = places[2 * depth + 1 : 3 * depth + 1], places[3 * depth + 1 :]
        links, layers = self.links, self.layers
        layers["values_of"], layers["own_of"], layers["noise_of"] = values_of[1:], own, noise_of
        layers["next_of"] = generated[1:]
        links["logits_of"][::2], links["values_of"][::2] = generated[:depth], values_of[:depth]
        links["logits_of"][1:-1:2], links["values_of"][1:-1:2] = own[1:], values_of[2:]
        return kept


def plain(values: Tensor) -> Tensor:
    """The same numbers as they are read from memory: one after the other, and none negated by a view's mark."""
    return values.contiguous().resolve_neg()
