"""What numba lacks for the CPU kernel: vectors of LANES numbers, and plain pointers.

numba's own loop vectoriser leaves a factor of ten here: it cannot keep one product per lane over a whole loop. With a
vector as a type, the loops that carry the work are plain Python (`p = p * fma(c, t, one)`), and LLVM maps a vector to
the registers that the machine has. `at` makes a pointer from an address; `p[i]` is one load, without numba's provision
for negative indices, which costs more than the load.
"""

from __future__ import annotations

import inspect
import operator

from llvmlite import ir
from numba import njit
from numba.core import cgutils, types
from numba.core.datamodel import PrimitiveModel, register_default
from numba.core.typing.templates import AbstractTemplate, infer_global
from numba.extending import intrinsic, lower_builtin

LANES = 8
I1, I8, I32, I64 = (ir.IntType(size) for size in (1, 8, 32, 64))

# No part of the kernel allocates, so none needs numba's reference counts, and none is called from Python, so none needs
# a wrapper. Inlining is left to LLVM: numba's own types a function anew wherever it is used, which takes longer.
OPTIONS = {"_nrt": False, "error_model": "numpy"}
_UNWRAPPED = {**OPTIONS, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
step = njit(**_UNWRAPPED)  # a function of its own
inlined = njit(forceinline=True, **_UNWRAPPED)  # a part of its callers


class Vector(types.Type):
    """LANES numbers of one type, or as many truth values."""

    def __init__(self, dtype):
        super().__init__(f"Vector({dtype})")
        self.dtype = dtype


@register_default(Vector)
class _VectorModel(PrimitiveModel):
    def __init__(self, manager, vector):
        scalar = I1 if vector.dtype == types.boolean else manager[vector.dtype].get_value_type()
        super().__init__(manager, vector, ir.VectorType(scalar, LANES))


def _operator(function, floats, integers=None, answer=None):
    """Let function(a, b) be the LLVM instruction for floats or for integers, a and b being vectors of the same type."""

    @infer_global(function)
    class _Typing(AbstractTemplate):
        def generic(self, args, kws):
            a, b = args
            return (Vector(answer) if answer else a)(a, b) if isinstance(a, Vector) and a == b else None

    @lower_builtin(function, Vector, Vector)
    def _lower(context, builder, signature, args):
        instruction = floats if isinstance(signature.args[0].dtype, types.Float) else integers
        return instruction(builder, *args)


_operator(operator.add, ir.IRBuilder.fadd, ir.IRBuilder.add)
_operator(operator.sub, ir.IRBuilder.fsub)
_operator(operator.mul, ir.IRBuilder.fmul)
_operator(operator.truediv, ir.IRBuilder.fdiv)
_operator(operator.or_, None, ir.IRBuilder.or_)
_operator(operator.eq, None, lambda b, x, y: b.icmp_unsigned("==", x, y), answer=types.boolean)
_operator(operator.gt, lambda b, x, y: b.fcmp_ordered(">", x, y), answer=types.boolean)
_operator(operator.lt, lambda b, x, y: b.fcmp_ordered("<", x, y), answer=types.boolean)


def _operation(answer, keep=False):
    """Make a function for compiled code out of emit(builder, kind, *args), which builds LLVM instructions.

    Args:
        answer: type of the result, from the types of the arguments; `kind` is LLVM's name of it.
        keep: leave whole numbers of any size as they are; otherwise they become int64.
    """

    def decorate(emit):
        def typed(typing, *args):
            def codegen(context, builder, signature, values):
                value = emit(builder, context.get_value_type(signature.return_type), *values)
                return context.get_dummy_value() if value is None else value

            args = [types.int64 if isinstance(a, types.Integer) and not keep else types.unliteral(a) for a in args]
            return answer(*args)(*args), codegen

        parameters = list(inspect.signature(emit).parameters.values())
        typed.__signature__ = inspect.Signature(parameters[1:])  # numba's context takes the place of `kind`
        typed.__name__, typed.__doc__ = emit.__name__, emit.__doc__
        return intrinsic(typed)

    return decorate


def _same(vector, *others):
    return vector


def _number(vector):
    return vector.dtype


def _nothing(*args):
    return types.void


def _constant(kind, value):
    return ir.Constant(kind, [value] * LANES)


def _bytes(number):
    return number.width // 8 if isinstance(number, ir.IntType) else 4 if isinstance(number, ir.FloatType) else 8


def _spread(builder, kind, value):
    """The number in every lane, converted to what the lanes hold."""
    if isinstance(value.type, ir.IntType) and not isinstance(kind.element, ir.IntType):
        value = builder.sitofp(value, kind.element)
    elif value.type != kind.element:
        value = (builder.fptrunc if isinstance(value.type, ir.DoubleType) else builder.fpext)(value, kind.element)
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(I32, 0))
    return builder.shuffle_vector(first, first, _constant(ir.VectorType(I32, LANES), 0))


@_operation(lambda number, address, index: types.CPointer(number.dtype))
def at(builder, kind, number, address, index):
    """A pointer to the index-th of the numbers at an address."""
    return builder.gep(builder.inttoptr(address, kind), [index])


@intrinsic
def record_at(typing, record, address, index):
    """The index-th of the records of a kind (see layout) at an address."""

    def codegen(context, builder, signature, args):
        base = builder.inttoptr(args[1], I8.as_pointer())
        here = builder.gep(base, [builder.mul(args[2], ir.Constant(I64, signature.return_type.size))])
        return builder.bitcast(here, context.get_value_type(signature.return_type))

    return record.dtype(record, types.int64, types.int64), codegen


@_operation(lambda pointer, index: Vector(pointer.dtype))
def load(builder, kind, pointer, index):
    """The LANES numbers from pointer[index] on, wherever that is."""
    value = builder.load(builder.bitcast(builder.gep(pointer, [index]), kind.as_pointer()))
    value.align = _bytes(kind.element)
    return value


@_operation(_nothing)
def store(builder, kind, pointer, index, vector):
    """Write a vector to pointer[index] and what follows."""
    there = builder.bitcast(builder.gep(pointer, [index]), vector.type.as_pointer())
    builder.store(vector, there).align = _bytes(vector.type.element)


@_operation(_nothing)
def store_columns(builder, kind, pointer, index, stride, a, b, c, d, e, f, g, h):
    """Write LANES vectors as the columns of a matrix; its rows begin at pointer[index], pointer[index + stride], ..."""
    half = LANES // 2
    order = [lane // 2 + LANES * (lane % 2) for lane in range(2 * LANES)]  # of two vectors, lane by lane
    low, high = (ir.Constant(ir.VectorType(I32, LANES), part) for part in (order[:LANES], order[LANES:]))
    rows = [a, b, c, d, e, f, g, h]
    for _ in range(half.bit_length()):  # each pass moves one bit of a number's place from the lane to the vector
        pairs = zip(rows[:half], rows[half:], strict=True)
        rows = [builder.shuffle_vector(x, y, part) for x, y in pairs for part in (low, high)]
    for row in rows:
        there = builder.bitcast(builder.gep(pointer, [index]), row.type.as_pointer())
        builder.store(row, there).align = _bytes(row.type.element)
        index = builder.add(index, stride)


@_operation(_nothing)
def copy(builder, kind, to, source, count):
    """to[j] = source[j] for j below count."""
    cgutils.memcpy(builder, to, source, count)


@_operation(lambda counters, index: types.int64)
def take(builder, kind, counters, index):
    """counters[index]++ as one indivisible step, the old value returned: how threads share out what there is to do."""
    return builder.atomic_rmw("add", builder.gep(counters, [index]), ir.Constant(I64, 1), "monotonic")


@_operation(Vector, keep=True)
def spread(builder, kind, value):
    """The number in every lane."""
    return _spread(builder, kind, value)


@_operation(_same)
def like(builder, kind, vector, value):
    """The number in every lane of a vector like the given one."""
    return _spread(builder, kind, value)


@_operation(_same)
def by_type(builder, kind, vector, single, double):
    """In every lane, the first number if the vector is of float32, the second if it is of float64."""
    return _spread(builder, kind, single if isinstance(kind.element, ir.FloatType) else double)


@_operation(lambda vector: Vector(types.float64))
def widen(builder, kind, vector):
    """A vector of float64 with the numbers of another vector."""
    return vector if vector.type == kind else builder.fpext(vector, kind)


@_operation(lambda condition, yes, no: yes)
def select(builder, kind, condition, yes, no):
    """In every lane: yes if the condition holds there, else no."""
    return builder.select(condition, yes, no)


def _fma(builder, a, b, c):
    name = f"llvm.fmuladd.v{LANES}f{8 * _bytes(a.type.element)}"
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(a.type, [a.type] * 3), name)
    return builder.call(function, [a, b, c])


@_operation(_same)
def fma(builder, kind, a, b, c):
    """a * b + c, as one instruction where the machine has it."""
    return _fma(builder, a, b, c)


def polynomial_of(single, double):
    """The polynomial with these coefficients, constant first, for vectors of float32 and of float64."""

    @_operation(_same)
    def polynomial(builder, kind, x):
        first, *rest = reversed(single if isinstance(kind.element, ir.FloatType) else double)
        value = _constant(kind, first)
        for coefficient in rest:
            value = _fma(builder, value, x, _constant(kind, coefficient))
        return value

    return polynomial


def _fold(builder, vector, combine):
    """All lanes combined into one number, two halves at a time."""
    half = LANES // 2
    while half:
        index = ir.VectorType(I32, half)
        low, high = (ir.Constant(index, list(range(first, first + half))) for first in (0, half))
        parts = (builder.shuffle_vector(vector, vector, part) for part in (low, high))
        vector = combine(*parts)
        half //= 2
    return builder.extract_element(vector, ir.Constant(I32, 0))


@_operation(_number)
def total(builder, kind, vector):
    """The sum of all lanes."""
    return _fold(builder, vector, builder.fadd)


@_operation(_number)
def product(builder, kind, vector):
    """The product of all lanes."""
    return _fold(builder, vector, builder.fmul)


@_operation(_number)
def largest(builder, kind, vector):
    """The largest lane."""
    return _fold(builder, vector, lambda a, b: builder.select(builder.fcmp_ordered(">", a, b), a, b))


@_operation(lambda condition: types.uint64)
def bits(builder, kind, condition):
    """The truth values as the LANES lowest bits of a number."""
    return builder.zext(builder.bitcast(condition, ir.IntType(LANES)), kind)


@_operation(lambda *conditions: types.uint32)
def block_bits(builder, kind, a, b, c, d):
    """The truth values of four vectors as the bits of a number."""

    def join(low, high):
        count = low.type.count + high.type.count
        return builder.shuffle_vector(low, high, ir.Constant(ir.VectorType(I32, count), list(range(count))))

    return builder.bitcast(join(join(a, b), join(c, d)), kind)


def _whole(kind):
    """Whole numbers of the same size as a vector's, the number of bits of one, and that of a mantissa."""
    size = 8 * _bytes(kind.element)
    return ir.VectorType(ir.IntType(size), LANES), size, 23 if size == 32 else 52


@_operation(lambda vector: Vector(types.int32 if vector.dtype == types.float32 else types.int64))
def signs(builder, kind, vector):
    """The sign bits, for `flip`."""
    whole, size, _ = _whole(vector.type)
    return builder.and_(builder.bitcast(vector, whole), _constant(whole, 1 << (size - 1)))


@_operation(_same)
def flip(builder, kind, vector, by):
    """The vector with its sign changed in the lanes where `signs` found one: no multiplication is spent on it."""
    return builder.bitcast(builder.xor(builder.bitcast(vector, by.type), by), kind)


@_operation(_same)
def exponent(builder, kind, vector):
    """k of every lane v = m 2**k with 1 <= m < 2, as numbers of the same type; v is positive and normal."""
    whole, size, digits = _whole(kind)
    biased = builder.lshr(builder.bitcast(vector, whole), _constant(whole, digits))
    k = builder.sub(biased, _constant(whole, (1 << (size - digits - 2)) - 1))
    if size == 64:  # whole numbers of 64 bits become float64 one by one, those of 32 bits all at once
        k = builder.trunc(k, ir.VectorType(I32, LANES))
    return builder.sitofp(k, kind)


@_operation(_same)
def mantissa(builder, kind, vector):
    """m of every lane v = m 2**k with 1 <= m < 2."""
    whole, size, digits = _whole(kind)
    kept = builder.and_(builder.bitcast(vector, whole), _constant(whole, (1 << digits) - 1))
    one = ((1 << (size - digits - 2)) - 1) << digits
    return builder.bitcast(builder.or_(kept, _constant(whole, one)), kind)


@_operation(_same)
def shift(builder, kind, vector, by):
    """vector * 2**k, k being what the lowest bits of `by` say; nothing may leave the range."""
    whole, _, digits = _whole(kind)
    k = builder.shl(builder.bitcast(by, whole), _constant(whole, digits))
    return builder.bitcast(builder.add(builder.bitcast(vector, whole), k), kind)


@_operation(lambda word: types.int64, keep=True)
def lowest_bit(builder, kind, word):
    """Position of the lowest bit set in a word of 64; 64 if there is none."""
    return builder.cttz(word, ir.Constant(I1, 0))


@_operation(lambda word: types.int64, keep=True)
def count_bits(builder, kind, word):
    """How many bits are set in a word of 64."""
    return builder.ctpop(word)
