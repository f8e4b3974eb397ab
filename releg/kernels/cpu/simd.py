"""The inner loops of the CPU kernel as explicit vector code, for use inside numba functions.

numba's own loop vectoriser leaves a factor of ten here: it cannot keep one product per lane over a whole row, and a
product across lanes leaves the range of float32 long before the lanes do. So the few loops that carry the work are
written out for vectors of LANES numbers, and LLVM maps these to what the machine has. All of them read one flat
array, `store`, at given offsets; `steps` counts vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

LANES = 8
BLOCK = 32  # numbers compared at once by `above`: one bit each
UNITS = 4  # rows multiplied at once by `row_products`: as many independent chains as hide the latency of one

I32 = ir.IntType(32)
Codegen = Callable[[Any, Any, Any, Sequence[Any]], Any]


class Vectors:
    """Vector operations on the array that is an intrinsic's first argument."""

    def __init__(self, context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> None:
        array = signature.args[0]
        self.builder = builder
        self.base = context.make_array(array)(context, builder, args[0]).data
        self.scalar = context.get_value_type(array.dtype)
        self.itemsize = array.dtype.bitwidth // 8

    def load(self, at: Any, lanes: int = LANES) -> Any:
        """The numbers from there on."""
        value = self.builder.load(self._pointer(at, lanes))
        value.align = self.itemsize  # not more: rows start anywhere
        return value

    def store(self, value: Any, at: Any) -> None:
        """Write a vector there."""
        self.builder.store(value, self._pointer(at, LANES)).align = self.itemsize

    def _pointer(self, at: Any, lanes: int) -> Any:
        return self.builder.bitcast(self.builder.gep(self.base, [at]), ir.VectorType(self.scalar, lanes).as_pointer())

    def constant(self, value: float) -> Any:
        """The same number in every lane."""
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
        vectors = Vectors(context, builder, signature, args)
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


@intrinsic
def add_scaled(typing: Any, store: Any, to: Any, by: Any, scale: Any, steps: Any) -> tuple[Any, Codegen]:
    """store[to + j] += scale * store[by + j]."""
    signature = types.void(store, types.intp, types.intp, store.dtype, types.intp)

    def codegen(context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> Any:
        vectors = Vectors(context, builder, signature, args)
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
        vectors = Vectors(context, builder, signature, args)
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
        vectors = Vectors(context, builder, signature, args)
        signs = builder.fmul(vectors.spread(args[3], BLOCK), vectors.load(args[2], BLOCK))
        moved = builder.fmul(signs, vectors.load(args[1], BLOCK))
        return _mask(builder, builder.fcmp_ordered(">", moved, vectors.spread(args[4], BLOCK)))

    return signature, codegen


@intrinsic
def above_each(typing: Any, store: Any, values: Any, signs: Any, thresholds: Any) -> tuple[Any, Codegen]:
    """Bit j: store[signs + j] * store[values + j] > store[thresholds + j], for BLOCK numbers."""
    signature = types.uint64(store, types.intp, types.intp, types.intp)

    def codegen(context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> Any:
        vectors = Vectors(context, builder, signature, args)
        values, signs, thresholds = (vectors.load(at, BLOCK) for at in args[1:4])
        return _mask(builder, builder.fcmp_ordered(">", builder.fmul(signs, values), thresholds))

    return signature, codegen
