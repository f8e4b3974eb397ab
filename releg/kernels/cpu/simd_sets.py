"""Vector code for sets of flipped units: products of rows first, then products of factors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from releg.kernels.cpu.simd import BLOCK, LANES, Codegen, Vectors


def _positions(rows: Any) -> Any:
    """The type of a tuple with as many rows."""
    return types.UniTuple(types.intp, len(rows))


class _SetLoop:
    """The loop over blocks of targets that the intrinsics on sets share: factor_j = stay_j + move_j * ratio_j.

    ratio_j is the product of some rows of the store. `each` sees every factor as it is made.
    """

    def __init__(self, context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> None:
        self.builder = builder
        self.vectors = Vectors(context, builder, signature, args)
        self.stay, self.move, rows, self.blocks = args[1:5]
        self.rows = cgutils.unpack_tuple(builder, rows, len(signature.args[3]))

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

    return types.float64(store, types.intp, types.intp, _positions(rows), types.intp), codegen


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
            builder.store(builder.trunc(reduce(builder.or_, bits), ir.IntType(BLOCK)), builder.gep(masks, [block]))

        return loop.run(each, after)

    return types.float64(store, types.intp, types.intp, _positions(rows), types.intp, types.intp, masks), codegen


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
    return types.float64(store, types.intp, types.intp, _positions(rows), *positions, store.dtype), codegen


@intrinsic
def combine_rows(typing: Any, store: Any, to: Any, rows: Any, blocks: Any) -> tuple[Any, Codegen]:
    """store[to + j] = the product of the rows over whole blocks; `to` may be one of them."""

    def codegen(context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> Any:
        vectors = Vectors(context, builder, signature, args)
        rows = cgutils.unpack_tuple(builder, args[2], len(signature.args[2]))

        def update(offset: Any, _: list[Any]) -> list[Any]:
            ratio = reduce(builder.fmul, [vectors.load(builder.add(row, offset)) for row in rows])
            vectors.store(ratio, builder.add(args[1], offset))
            return []

        vectors.accumulate(0.0, 0, builder.mul(args[3], ir.Constant(args[3].type, BLOCK // LANES)), update)
        return context.get_dummy_value()

    return types.void(store, types.intp, _positions(rows), types.intp), codegen
