"""Memory as the CPU kernel sees it: arrays at addresses, counters shared by threads, loads without provisions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from releg.kernels.cpu.simd import Codegen


@intrinsic
def get(typing: Any, array: Any, index: Any) -> tuple[Any, Codegen]:
    """array[index] without numba's provision for negative indices, which costs more than the load."""

    def codegen(context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> Any:
        base = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.load(builder.gep(base, [args[1]]))

    return array.dtype(array, types.intp), codegen


@intrinsic
def put(typing: Any, array: Any, index: Any, value: Any) -> tuple[Any, Codegen]:
    """array[index] = value, likewise."""

    def codegen(context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> Any:
        base = context.make_array(signature.args[0])(context, builder, args[0]).data
        builder.store(args[2], builder.gep(base, [args[1]]))
        return context.get_dummy_value()

    return types.void(array, types.intp, array.dtype), codegen


@intrinsic
def prefetch(typing: Any, array: Any, index: Any) -> tuple[Any, Codegen]:
    """Begin to load array[index] into the cache; the index may lie behind the end."""

    def codegen(context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> Any:
        base = context.make_array(signature.args[0])(context, builder, args[0]).data
        i32, byte = ir.IntType(32), ir.IntType(8).as_pointer()
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(ir.VoidType(), [byte, i32, i32, i32]), "llvm.prefetch"
        )
        address = builder.bitcast(builder.gep(base, [args[1]]), byte)
        builder.call(function, [address, *(ir.Constant(i32, number) for number in (0, 3, 1))])  # read, keep, data
        return context.get_dummy_value()

    return types.void(array, types.intp), codegen


@intrinsic
def lowest_bit(typing: Any, mask: Any) -> tuple[Any, Codegen]:
    """Position of the lowest bit set in a mask that is not zero."""

    def codegen(context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.intp(types.uint64), codegen


@intrinsic
def take(typing: Any, counters: Any, index: Any) -> tuple[Any, Codegen]:
    """counters[index]++ as one indivisible step, the old value returned: how threads share out what there is to do."""

    def codegen(context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> Any:
        base = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.atomic_rmw("add", builder.gep(base, [args[1]]), ir.Constant(ir.IntType(64), 1), "monotonic")

    return types.int64(counters, types.intp), codegen


def _array_at(dimensions: int) -> Codegen:
    def codegen(context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> Any:
        array = context.make_array(signature.return_type)(context, builder)
        item = context.get_abi_sizeof(context.get_value_type(signature.return_type.dtype))
        shape, stride = list(args[1 : 1 + dimensions]), ir.Constant(ir.IntType(64), item)
        strides: list[Any] = []
        for length in reversed(shape):
            strides.insert(0, stride)
            stride = builder.mul(stride, length)
        data = builder.inttoptr(args[0], array.data.type)
        populate_array(array, data, shape, strides, ir.Constant(ir.IntType(64), item), meminfo=None)
        return array._getvalue()

    return codegen


@intrinsic
def vector_at(typing: Any, address: Any, length: Any, number: Any) -> tuple[Any, Codegen]:
    """The array of that many numbers at an address."""
    return types.Array(number.dtype, 1, "C")(types.int64, types.intp, number), _array_at(1)


@intrinsic
def matrix_at(typing: Any, address: Any, rows: Any, columns: Any, number: Any) -> tuple[Any, Codegen]:
    """The array of rows * columns numbers at an address."""
    return types.Array(number.dtype, 2, "C")(types.int64, types.intp, types.intp, number), _array_at(2)


@intrinsic
def copy_in(typing: Any, store: Any, to: Any, address: Any, count: Any) -> tuple[Any, Codegen]:
    """store[to + j] = the j-th of the numbers at an address."""

    def codegen(context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> Any:
        base = context.make_array(signature.args[0])(context, builder, args[0]).data
        source = builder.inttoptr(args[2], base.type)
        cgutils.memcpy(builder, builder.gep(base, [args[1]]), source, args[3])
        return context.get_dummy_value()

    return types.void(store, types.intp, types.int64, types.intp), codegen
