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

ROWS = 4  # rows whose product is the ratio of a set; larger sets are combined into fewer rows first

I32 = ir.IntType(32)
SET_ROWS = types.UniTuple(types.intp, ROWS)
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

    def widen(self, vector: Any) -> Any:
        """The same numbers in float64."""
        double = ir.VectorType(ir.DoubleType(), LANES)
        return vector if vector.type == double else self.builder.fpext(vector, double)

    def fold(self, vector: Any, combine: Callable[[Any, Any], Any]) -> Any:
        """All lanes combined, in float64: the product of eight float32 lanes needs its range."""
        vector = self.widen(vector)
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
    """The loop over blocks of targets that the intrinsics on sets share: factor_j = stay_j + move_j * ratio_j.

    ratio_j is the product of ROWS rows of the store. `each` sees every factor as it is made.
    """

    def __init__(self, context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> None:
        self.builder = builder
        self.vectors = _Vectors(context, builder, signature, args)
        self.stay, self.move, rows, self.blocks = args[1:5]
        self.rows = cgutils.unpack_tuple(builder, rows, ROWS)

    def slots(self, start: float) -> list[Any]:
        """One accumulator per vector of a block."""
        value = self.vectors.constant(start)
        slots = [cgutils.alloca_once_value(self.builder, value) for _ in range(BLOCK // LANES)]
        for slot in slots:
            self.builder.store(value, slot)  # the allocation may have been hoisted out of a loop
        return slots

    def run(self, each: Callable[[int, Any, Any, Any], None], after: Callable[[Any], None]) -> Any:
        """The product of all factors; calls each(part, position, ratio, factor) and after(block)."""
        builder, vectors = self.builder, self.vectors
        products = self.slots(1.0)
        with cgutils.for_range(builder, self.blocks) as loop:
            offset = builder.mul(loop.index, ir.Constant(loop.index.type, BLOCK))
            for part in range(BLOCK // LANES):
                here = builder.add(offset, ir.Constant(offset.type, part * LANES))
                ratio = reduce(builder.fmul, [vectors.load(builder.add(row, here)) for row in self.rows])
                move, stay = (vectors.load(builder.add(at, here)) for at in (self.move, self.stay))
                factor = vectors.multiply_add(move, ratio, stay)
                builder.store(builder.fmul(builder.load(products[part]), factor), products[part])
                each(part, here, ratio, factor)
            after(loop.index)
        return self.total(products, builder.fmul)

    def total(self, slots: list[Any], combine: Callable[[Any, Any], Any]) -> Any:
        """All lanes of all accumulators combined, in float64."""
        vectors = [self.vectors.widen(self.builder.load(slot)) for slot in slots]
        return self.vectors.fold(reduce(combine, vectors), combine)


@intrinsic
def set_product(typing: Any, store: Any, stay: Any, move: Any, rows: Any, blocks: Any) -> tuple[Any, Codegen]:
    """Product over j of store[stay + j] + store[move + j] * ratio_j over whole blocks, in float64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> Any:
        return _SetLoop(context, builder, signature, args).run(lambda *_: None, lambda _: None)

    return types.float64(store, types.intp, types.intp, SET_ROWS, types.intp), codegen


@intrinsic
def set_product_and_changes(
    typing: Any, store: Any, stay: Any, move: Any, rows: Any, blocks: Any, thresholds: Any, masks: Any
) -> tuple[Any, Codegen]:
    """As set_product; and bit j of masks, one number per block: whether ratio_j has crossed |threshold_j|.

    Upwards if the threshold is positive, downwards if it is negative.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> Any:
        loop = _SetLoop(context, builder, signature, args)
        masks = context.make_array(signature.args[6])(context, builder, args[6]).data
        i64, bits = ir.IntType(64), []
        width = 8 * loop.vectors.itemsize
        whole = ir.VectorType(ir.IntType(width), LANES)
        zero, sign, below_sign = (
            ir.Constant(whole, [v] * LANES) for v in (0, 1 << (width - 1), (1 << (width - 1)) - 1)
        )

        def each(part: int, here: Any, ratio: Any, factor: Any) -> None:
            threshold = builder.bitcast(loop.vectors.load(builder.add(args[5], here)), whole)
            magnitude = builder.bitcast(builder.and_(threshold, below_sign), ratio.type)
            distance = builder.bitcast(builder.fsub(magnitude, ratio), whole)
            # the answer is a sign bit, which one instruction collects from all lanes
            crossed = builder.icmp_signed("<", builder.xor(distance, builder.and_(threshold, sign)), zero)
            byte = builder.zext(builder.bitcast(crossed, ir.IntType(LANES)), i64)
            bits.append(builder.shl(byte, ir.Constant(i64, part * LANES)))

        def after(block: Any) -> None:
            builder.store(reduce(builder.or_, bits), builder.gep(masks, [block]))

        return loop.run(each, after)

    return types.float64(store, types.intp, types.intp, SET_ROWS, types.intp, types.intp, masks), codegen


@intrinsic
def set_logit_means(
    typing: Any, store: Any, stay: Any, move: Any, rows: Any, blocks: Any, logits: Any, delta: Any, sign: Any
) -> tuple[Any, Codegen]:
    """Sum over j of (logits + sign * delta) * mean of the targets after the flips, in float64.

    The mean is store[move + j] * ratio_j over the factor of set_product.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> Any:
        loop = _SetLoop(context, builder, signature, args)
        vectors, sums = loop.vectors, loop.slots(0.0)
        sign = vectors.spread(args[7])

        def each(part: int, here: Any, ratio: Any, factor: Any) -> None:
            move, logits, delta = (vectors.load(builder.add(at, here)) for at in (args[2], args[5], args[6]))
            mean = builder.fdiv(builder.fmul(move, ratio), factor)
            logit = vectors.multiply_add(sign, delta, logits)
            builder.store(vectors.multiply_add(logit, mean, builder.load(sums[part])), sums[part])

        loop.run(each, lambda _: None)
        return loop.total(sums, builder.fadd)

    positions = [types.intp] * 3
    return types.float64(store, types.intp, types.intp, SET_ROWS, *positions, store.dtype), codegen


@intrinsic
def combine_rows(typing: Any, store: Any, to: Any, rows: Any, blocks: Any) -> tuple[Any, Codegen]:
    """store[to + j] = the product of ROWS rows over whole blocks; `to` may be one of them."""

    def codegen(context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> Any:
        vectors = _Vectors(context, builder, signature, args)
        rows = cgutils.unpack_tuple(builder, args[2], ROWS)

        def update(offset: Any, _: list[Any]) -> list[Any]:
            ratio = reduce(builder.fmul, [vectors.load(builder.add(row, offset)) for row in rows])
            vectors.store(ratio, builder.add(args[1], offset))
            return []

        vectors.accumulate(0.0, 0, builder.mul(args[3], ir.Constant(args[3].type, BLOCK // LANES)), update)
        return context.get_dummy_value()

    return types.void(store, types.intp, SET_ROWS, types.intp), codegen


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
