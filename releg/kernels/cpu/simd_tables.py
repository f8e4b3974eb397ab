"""Vector code that fills the CPU kernel's tables: exponentials, sigmoids, thresholds and bounds of weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from releg.kernels.cpu.simd import LANES, Codegen, Vectors

# Per size of a number: bits of the mantissa, terms of the series, range of the argument, log 2 in two parts: the first
# has zeros at its end, so that its product with a whole number is exact
EXPONENTIAL = {
    4: (23, 8, (-86.0, 88.0), (0.693359375, math.log(2) - 0.693359375)),
    8: (52, 14, (-707.0, 709.0), (0.6931471803691238, 1.9082149292705877e-10)),
}


def exponential(vectors: Vectors, x: Any) -> Any:
    """exp(x) in every lane, 2**k * series(x - k log 2), x cut off where the result would leave the range.

    It is right to the last bits, and replaces one call of the C library per number.
    """
    builder = vectors.builder
    mantissa, terms, (low, high), (log2, rest) = EXPONENTIAL[vectors.itemsize]
    whole = ir.VectorType(ir.IntType(8 * vectors.itemsize), LANES)
    x = larger(vectors, smaller(vectors, x, vectors.constant(high)), vectors.constant(low))
    magic = vectors.constant(1.5 * 2**mantissa)  # adding it leaves k in the lowest bits
    shifted = vectors.multiply_add(x, vectors.constant(1 / math.log(2)), magic)
    k = builder.fsub(shifted, magic)
    part = vectors.multiply_add(k, vectors.constant(-log2), x)
    part = vectors.multiply_add(k, vectors.constant(-rest), part)
    series = vectors.constant(1 / math.factorial(terms - 1))
    for term in range(terms - 2, -1, -1):
        series = vectors.multiply_add(series, part, vectors.constant(1 / math.factorial(term)))
    bits = builder.shl(builder.bitcast(shifted, whole), ir.Constant(whole, [mantissa] * LANES))
    return builder.bitcast(builder.add(builder.bitcast(series, whole), bits), series.type)


def larger(vectors: Vectors, a: Any, b: Any) -> Any:
    """The larger number in every lane; b where a is none."""
    return vectors.builder.select(vectors.builder.fcmp_ordered(">", a, b), a, b)


def smaller(vectors: Vectors, a: Any, b: Any) -> Any:
    """The smaller number in every lane; b where a is none."""
    return vectors.builder.select(vectors.builder.fcmp_ordered("<", a, b), a, b)


def magnitude(vectors: Vectors, x: Any) -> Any:
    """|x| in every lane."""
    return larger(vectors, x, vectors.builder.fneg(x))


def _for_each_step(vectors: Vectors, steps: Any, body: Callable[[Any], None]) -> None:
    def update(offset: Any, _: list[Any]) -> list[Any]:
        body(offset)
        return []

    vectors.accumulate(0.0, 0, steps, update)


@intrinsic
def exponentials(typing: Any, store: Any, to: Any, by: Any, sign: Any, steps: Any) -> tuple[Any, Codegen]:
    """store[to + j] = exp(sign * store[by + j])."""
    signature = types.void(store, types.intp, types.intp, store.dtype, types.intp)

    def codegen(context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> Any:
        vectors = Vectors(context, builder, signature, args)
        sign = vectors.spread(args[3])

        def body(offset: Any) -> None:
            x = builder.fmul(sign, vectors.load(builder.add(args[2], offset)))
            vectors.store(exponential(vectors, x), builder.add(args[1], offset))

        _for_each_step(vectors, args[4], body)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def sigmoids(typing: Any, store: Any, stay: Any, move: Any, logits: Any, steps: Any) -> tuple[Any, Codegen]:
    """store[stay + j] = sigmoid(-logits), store[move + j] = sigmoid(logits), both exact when saturated."""
    signature = types.void(store, types.intp, types.intp, types.intp, types.intp)

    def codegen(context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> Any:
        vectors = Vectors(context, builder, signature, args)
        one, zero = vectors.constant(1.0), vectors.constant(0.0)

        def body(offset: Any) -> None:
            logits = vectors.load(builder.add(args[3], offset))
            decay = exponential(vectors, builder.fneg(magnitude(vectors, logits)))
            likely = builder.fdiv(one, builder.fadd(one, decay))
            unlikely = builder.fmul(decay, likely)
            positive = builder.fcmp_ordered(">", logits, zero)
            vectors.store(builder.select(positive, unlikely, likely), builder.add(args[1], offset))
            vectors.store(builder.select(positive, likely, unlikely), builder.add(args[2], offset))

        _for_each_step(vectors, args[4], body)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def thresholds(
    typing: Any, store: Any, margins: Any, to: Any, signs: Any, logits: Any, least: Any, steps: Any
) -> tuple[Any, Codegen]:
    """margins, logit(noise) before, become max(sign * (logit(noise) - logits), least); to: sign * exp(sign * margin).

    Where sign is 0, behind the last unit, both become infinite.
    """
    signature = types.void(store, types.intp, types.intp, types.intp, types.intp, store.dtype, types.intp)

    def codegen(context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> Any:
        vectors = Vectors(context, builder, signature, args)
        least, zero, infinite = vectors.spread(args[5]), vectors.constant(0.0), vectors.constant(math.inf)

        def body(offset: Any) -> None:
            at, to, signs, logits = (builder.add(a, offset) for a in args[1:5])
            sign = vectors.load(signs)
            distance = builder.fmul(sign, builder.fsub(vectors.load(at), vectors.load(logits)))
            margin = larger(vectors, distance, least)
            threshold = builder.fmul(sign, exponential(vectors, builder.fmul(sign, margin)))
            unit = builder.fcmp_ordered("!=", sign, zero)
            vectors.store(builder.select(unit, margin, infinite), at)
            vectors.store(builder.select(unit, threshold, infinite), to)

        _for_each_step(vectors, args[6], body)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def bounds(typing: Any, store: Any, row: Any, steps: Any) -> tuple[Any, Codegen]:
    """Largest |number|, sum of |numbers| and sum of numbers of a row, in float64."""
    signature = types.UniTuple(types.float64, 3)(store, types.intp, types.intp)

    def codegen(context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> Any:
        vectors = Vectors(context, builder, signature, args)

        def update(offset: Any, state: list[Any]) -> list[Any]:
            x = vectors.load(builder.add(args[1], offset))
            absolute = magnitude(vectors, x)
            top = builder.select(builder.fcmp_unordered("<", state[0], absolute), absolute, state[0])  # keeps NaN
            return [top, builder.fadd(state[1], absolute), builder.fadd(state[2], x)]

        top, spread, total = vectors.accumulate(0.0, 3, args[2], update)

        def maximum(a: Any, b: Any) -> Any:
            return builder.select(builder.fcmp_unordered("<", a, b), b, a)

        folded = [vectors.fold(top, maximum), vectors.fold(spread, builder.fadd), vectors.fold(total, builder.fadd)]
        return context.make_tuple(builder, signature.return_type, folded)

    return signature, codegen
