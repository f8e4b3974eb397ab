"""The inner loops of the CPU kernel as explicit vector code, for use inside numba functions.

numba's own loop vectoriser leaves a factor of ten here: it cannot keep one product per lane over a whole row, and a
product across lanes leaves the range of float32 long before the lanes do. So the few loops that carry the work are
written out for vectors of LANES numbers, and LLVM maps these to what the machine has. All of them read one flat
array, `store`, at given offsets; `steps` counts vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

LANES = 8
BLOCK = 32  # numbers compared at once by `above`: one bit each
UNITS = 4  # rows multiplied at once by `row_products`: as many independent chains as hide the latency of one

I32 = ir.IntType(32)
Codegen = Callable[[Any, Any, Any, Sequence[Any]], Any]


class _Vectors:
    """Vector operations on the array that is an intrinsic's first argument."""

    def __init__(self, context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> None:
        array = signature.args[0]
        self.builder = builder
        self.base = context.make_array(array)(context, builder, args[0]).data
        self.scalar = context.get_value_type(array.dtype)
        self.itemsize = array.dtype.bitwidth // 8

    def load(self, at: Any, lanes: int = LANES) -> Any:
        value = self.builder.load(self._pointer(at, lanes))
        value.align = self.itemsize  # not more: rows start anywhere
        return value

    def store(self, value: Any, at: Any) -> None:
        self.builder.store(value, self._pointer(at, LANES)).align = self.itemsize

    def _pointer(self, at: Any, lanes: int) -> Any:
        return self.builder.bitcast(self.builder.gep(self.base, [at]), ir.VectorType(self.scalar, lanes).as_pointer())

    def constant(self, value: float) -> Any:
        return ir.Constant(ir.VectorType(self.scalar, LANES), [value] * LANES)

    def spread(self, value: Any, lanes: int = LANES) -> Any:
        """The scalar in every lane."""
        empty = ir.Constant(ir.VectorType(self.scalar, lanes), ir.Undefined)
        first = self.builder.insert_element(empty, value, ir.Constant(I32, 0))
        return self.builder.shuffle_vector(first, empty, ir.Constant(ir.VectorType(I32, lanes), [0] * lanes))

    def multiply_add(self, a: Any, b: Any, c: Any) -> Any:
        """A * b + c, as one instruction where the machine has it (llvm.fma would be a library call elsewhere)."""
        flags = ("contract",)
        return self.builder.fadd(self.builder.fmul(a, b, flags=flags), c, flags=flags)

    def accumulate(self, start: float, count: int, steps: Any, update: Callable[[Any, list[Any]], list[Any]]) -> Any:
        """`count` vectors that begin as `start`, after update(offset, vectors) for each step."""
        slots = [cgutils.alloca_once_value(self.builder, self.constant(start)) for _ in range(count)]
        with cgutils.for_range(self.builder, steps) as loop:
            offset = self.builder.mul(loop.index, ir.Constant(loop.index.type, LANES))
            for slot, value in zip(slots, update(offset, [self.builder.load(s) for s in slots]), strict=True):
                self.builder.store(value, slot)
        return [self.builder.load(slot) for slot in slots]

    def fold(self, vector: Any, combine: Callable[[Any, Any], Any]) -> Any:
        """All lanes combined, in float64: the product of eight float32 lanes needs its range."""
        if self.itemsize == 4:
            vector = self.builder.fpext(vector, ir.VectorType(ir.DoubleType(), LANES))
        half = LANES // 2
        while half:
            index = ir.VectorType(I32, half)
            low = self.builder.shuffle_vector(vector, vector, ir.Constant(index, list(range(half))))
            high = self.builder.shuffle_vector(vector, vector, ir.Constant(index, list(range(half, 2 * half))))
            vector = combine(low, high)
            half //= 2
        return self.builder.extract_element(vector, ir.Constant(I32, 0))


@intrinsic
def row_products(typing: Any, store: Any, stay: Any, move: Any, rows: Any, steps: Any) -> tuple[Any, Codegen]:
    """For each of UNITS rows: product over j of store[stay + j] + store[move + j] * store[row + j], in float64."""
    signature = types.UniTuple(types.float64, UNITS)(
        store, types.intp, types.intp, types.UniTuple(types.intp, UNITS), types.intp
    )

    def codegen(context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> Any:
        vectors = _Vectors(context, builder, signature, args)
        rows = cgutils.unpack_tuple(builder, args[3], UNITS)

        def update(offset: Any, products: list[Any]) -> list[Any]:
            stay, move = (vectors.load(builder.add(at, offset)) for at in args[1:3])
            return [
                builder.fmul(p, vectors.multiply_add(move, vectors.load(builder.add(row, offset)), stay))
                for p, row in zip(products, rows, strict=True)
            ]

        products = vectors.accumulate(1.0, UNITS, args[4], update)
        folded = [vectors.fold(p, builder.fmul) for p in products]
        return context.make_tuple(builder, signature.return_type, folded)

    return signature, codegen


class _SetLoop:
    """The loop over blocks of targets that all intrinsics on sets share; `each` sees every factor as it is made."""

    def __init__(self, context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> None:
        self.builder = builder
        self.vectors = _Vectors(context, builder, signature, args)
        self.stay, self.move, self.up_count, self.count, self.blocks = (args[i] for i in (1, 2, 4, 5, 6))
        self.members = context.make_array(signature.args[3])(context, builder, args[3]).data

    def slots(self, start: float) -> list[Any]:
        """One accumulator per vector of a block."""
        value = self.vectors.constant(start)
        slots = [cgutils.alloca_once_value(self.builder, value) for _ in range(BLOCK // LANES)]
        for slot in slots:
            self.builder.store(value, slot)  # the allocation may have been hoisted out of a loop
        return slots

    def run(self, each: Callable[[int, Any, Any, Any, Any], None], after: Callable[[Any], None]) -> Any:
        """The product of all factors; each(part, position, up, down, factor), after(block)."""
        builder, vectors = self.builder, self.vectors
        products = self.slots(1.0)
        with cgutils.for_range(builder, self.blocks) as loop:
            offset = builder.mul(loop.index, ir.Constant(loop.index.type, BLOCK))
            ups = self._rows(offset, ir.Constant(self.count.type, 0), self.up_count)
            downs = self._rows(offset, self.up_count, self.count)
            for part, (up, down) in enumerate(zip(ups, downs, strict=True)):
                here = builder.add(offset, ir.Constant(offset.type, part * LANES))
                kept = builder.fmul(vectors.load(builder.add(self.stay, here)), down)
                factor = vectors.multiply_add(vectors.load(builder.add(self.move, here)), up, kept)
                builder.store(builder.fmul(builder.load(products[part]), factor), products[part])
                each(part, here, up, down, factor)
            after(loop.index)
        return self.total(products, builder.fmul)

    def _rows(self, offset: Any, start: Any, stop: Any) -> list[Any]:
        """Products of the rows start..stop at one block."""
        builder, slots = self.builder, self.slots(1.0)
        with cgutils.for_range_slice(builder, start, stop, ir.Constant(start.type, 1)) as (index, _):
            row = builder.add(builder.load(builder.gep(self.members, [index])), offset)
            for part, slot in enumerate(slots):
                value = self.vectors.load(builder.add(row, ir.Constant(row.type, part * LANES)))
                builder.store(builder.fmul(builder.load(slot), value), slot)
        return [builder.load(slot) for slot in slots]

    def total(self, slots: list[Any], combine: Callable[[Any, Any], Any]) -> Any:
        """All lanes of all accumulators combined, in float64."""
        return reduce(combine, [self.vectors.fold(self.builder.load(slot), combine) for slot in slots])


@intrinsic
def set_product(
    typing: Any, store: Any, stay: Any, move: Any, rows: Any, up_count: Any, count: Any, blocks: Any
) -> tuple[Any, Codegen]:
    """Product over j of store[stay + j] * down_j + store[move + j] * up_j over whole blocks, in float64.

    `rows` are offsets of rows of the store; up_j is the product of the first up_count of them, down_j of the others.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> Any:
        return _SetLoop(context, builder, signature, args).run(lambda *_: None, lambda _: None)

    return types.float64(store, types.intp, types.intp, rows, types.intp, types.intp, types.intp), codegen


@intrinsic
def set_product_and_changes(
    typing: Any,
    store: Any,
    stay: Any,
    move: Any,
    rows: Any,
    up_count: Any,
    count: Any,
    blocks: Any,
    signs: Any,
    thresholds: Any,
    masks: Any,
) -> tuple[Any, Codegen]:
    """As set_product; and bit j of masks, one number per block: sign_j * up_j > threshold_j * down_j."""

    def codegen(context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> Any:
        loop = _SetLoop(context, builder, signature, args)
        masks = context.make_array(signature.args[9])(context, builder, args[9]).data
        i64, bits = ir.IntType(64), []

        def each(part: int, here: Any, up: Any, down: Any, factor: Any) -> None:
            signs, thresholds = (loop.vectors.load(builder.add(at, here)) for at in args[7:9])
            crossed = builder.fcmp_ordered(">", builder.fmul(signs, up), builder.fmul(thresholds, down))
            byte = builder.zext(builder.bitcast(crossed, ir.IntType(LANES)), i64)
            bits.append(builder.shl(byte, ir.Constant(i64, part * LANES)))

        def after(block: Any) -> None:
            builder.store(reduce(builder.or_, bits), builder.gep(masks, [block]))

        return loop.run(each, after)

    positions = [types.intp] * 5
    return types.float64(store, types.intp, types.intp, rows, *positions, masks), codegen


@intrinsic
def set_logit_means(
    typing: Any,
    store: Any,
    stay: Any,
    move: Any,
    rows: Any,
    up_count: Any,
    count: Any,
    blocks: Any,
    logits: Any,
    delta: Any,
    sign: Any,
) -> tuple[Any, Codegen]:
    """Sum over j of (logits + sign * delta) * mean of the targets after the flips, in float64.

    The mean is store[move + j] * up_j over the factor of set_product.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> Any:
        loop = _SetLoop(context, builder, signature, args)
        vectors, sums = loop.vectors, loop.slots(0.0)
        sign = vectors.spread(args[9])

        def each(part: int, here: Any, up: Any, down: Any, factor: Any) -> None:
            move, logits, delta = (vectors.load(builder.add(at, here)) for at in (args[2], args[7], args[8]))
            mean = builder.fdiv(builder.fmul(move, up), factor)
            logit = vectors.multiply_add(sign, delta, logits)
            builder.store(vectors.multiply_add(logit, mean, builder.load(sums[part])), sums[part])

        loop.run(each, lambda _: None)
        return loop.total(sums, builder.fadd)

    positions = [types.intp] * 5
    return types.float64(store, types.intp, types.intp, rows, *positions, store.dtype), codegen


@intrinsic
def add_scaled(typing: Any, store: Any, to: Any, by: Any, scale: Any, steps: Any) -> tuple[Any, Codegen]:
    """store[to + j] += scale * store[by + j]."""
    signature = types.void(store, types.intp, types.intp, store.dtype, types.intp)

    def codegen(context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> Any:
        vectors = _Vectors(context, builder, signature, args)
        scale = vectors.spread(args[3])

        def update(offset: Any, _: list[Any]) -> list[Any]:
            to, by = (builder.add(at, offset) for at in args[1:3])
            vectors.store(vectors.multiply_add(scale, vectors.load(by), vectors.load(to)), to)
            return []

        vectors.accumulate(0.0, 0, args[4], update)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def fill(typing: Any, store: Any, to: Any, value: Any, steps: Any) -> tuple[Any, Codegen]:
    """store[to + j] = value."""
    signature = types.void(store, types.intp, store.dtype, types.intp)

    def codegen(context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> Any:
        vectors = _Vectors(context, builder, signature, args)
        value = vectors.spread(args[2])

        def update(offset: Any, _: list[Any]) -> list[Any]:
            vectors.store(value, builder.add(args[1], offset))
            return []

        vectors.accumulate(0.0, 0, args[3], update)
        return context.get_dummy_value()

    return signature, codegen


def _mask(builder: Any, condition: Any) -> Any:
    """BLOCK truth values as the bits of one number, the first the lowest."""
    return builder.zext(builder.bitcast(condition, ir.IntType(BLOCK)), ir.IntType(64))


@intrinsic
def above(typing: Any, store: Any, values: Any, signs: Any, sign: Any, threshold: Any) -> tuple[Any, Codegen]:
    """Bit j: sign * store[signs + j] * store[values + j] > threshold, for BLOCK numbers."""
    signature = types.uint64(store, types.intp, types.intp, store.dtype, store.dtype)

    def codegen(context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> Any:
        vectors = _Vectors(context, builder, signature, args)
        signs = builder.fmul(vectors.spread(args[3], BLOCK), vectors.load(args[2], BLOCK))
        moved = builder.fmul(signs, vectors.load(args[1], BLOCK))
        return _mask(builder, builder.fcmp_ordered(">", moved, vectors.spread(args[4], BLOCK)))

    return signature, codegen


@intrinsic
def above_each(typing: Any, store: Any, values: Any, signs: Any, thresholds: Any) -> tuple[Any, Codegen]:
    """Bit j: store[signs + j] * store[values + j] > store[thresholds + j], for BLOCK numbers."""
    signature = types.uint64(store, types.intp, types.intp, types.intp)

    def codegen(context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> Any:
        vectors = _Vectors(context, builder, signature, args)
        values, signs, thresholds = (vectors.load(at, BLOCK) for at in args[1:4])
        return _mask(builder, builder.fcmp_ordered(">", builder.fmul(signs, values), thresholds))

    return signature, codegen


@intrinsic
def lowest_bit(typing: Any, mask: Any) -> tuple[Any, Codegen]:
    """Position of the lowest bit set in a mask that is not zero."""

    def codegen(context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.intp(types.uint64), codegen


@intrinsic
def take(typing: Any, counter: Any) -> tuple[Any, Codegen]:
    """counter[0]++ as one indivisible step, the old value returned: how threads share out the rows."""

    def codegen(context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> Any:
        base = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.atomic_rmw("add", base, ir.Constant(ir.IntType(64), 1), "monotonic")

    return types.int64(counter), codegen
