# mypy: ignore-errors
# numba types what it compiles from what it is called with; the docstrings say what that is
"""Loops over single numbers that torch would need several passes for, compiled by numba for float32 on the CPU.

Each loop is a C function of one pointer, so that the threads torch has anyway can run it (kernels/cpu/threads.py): the
pointer is the address of a table of int64, whose first number counts the pieces of work taken so far. This file is the
only one that numba's cache on disk looks at, so all that is compiled stands in it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from llvmlite import binding, ir
from numba import carray, cfunc, njit, types
from numba.extending import intrinsic
from torch import Tensor

from releg.kernels.cpu.threads import run_team

HAS_FMA = bool(binding.get_host_cpu_features().get("fma", False))  # torch's own loops use it where there is one
PIECE = 2048  # numbers per piece of work: their arrays stay in the first cache
UPDATE_COLUMNS = 6  # of the table of `update_rmsprop`, per parameter
MKL_ROOT_MODE = 0x00140102  # VML_HA | VML_FTZDAZ_OFF | VML_ERRMODE_IGNORE: how torch asks for roots

OPTIONS: dict[str, Any] = {"error_model": "numpy"}
inlined = njit(forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, **OPTIONS)


@intrinsic
def pointer(typing_context: Any, address: Any) -> Any:
    """The address as a pointer that carray understands."""
    return types.voidptr(types.int64), lambda _, builder, __, args: builder.inttoptr(
        args[0], ir.IntType(8).as_pointer()
    )


@intrinsic
def take(typing_context: Any, address: Any) -> Any:
    """Add one to the int64 at the address, whatever other threads do, and answer with what it was."""

    def generate(_: Any, builder: Any, __: Any, args: Any) -> Any:
        number = ir.IntType(64)
        return builder.atomic_rmw("add", builder.inttoptr(args[0], number.as_pointer()), number(1), "monotonic")

    return types.int64(types.int64), generate


@intrinsic
def multiply_add(typing_context: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once where the machine can; without, a library call would be a hundred times as slow."""

    def generate(_: Any, builder: Any, __: Any, args: Any) -> Any:
        return builder.fma(*args) if HAS_FMA else builder.fadd(builder.fmul(args[0], args[1]), args[2])

    return a(a, a, a), generate


@intrinsic
def as_float(typing_context: Any, bits: Any) -> Any:
    """The float32 with these 32 bits."""
    return types.float32(types.int32), lambda _, builder, __, args: builder.bitcast(args[0], ir.FloatType())


@intrinsic
def call_root(typing_context: Any, function: Any, count: Any, source: Any, target: Any, mode: Any) -> Any:
    """Call MKL's vmsSqrt, whose address is given: roots of `count` float32 at `source` go to `target`."""

    def generate(_: Any, builder: Any, __: Any, args: Any) -> Any:
        word = ir.IntType(32)
        signature = ir.FunctionType(ir.VoidType(), [word, ir.IntType(64), ir.IntType(64), ir.IntType(64)])
        entry = builder.inttoptr(args[0], signature.as_pointer())
        builder.call(entry, [builder.trunc(args[1], word), *args[2:]])
        return _.get_dummy_value()

    return types.void(*[types.int64] * 5), generate


@inlined
def floats(address, count):
    """The `count` float32 at the address."""
    return carray(pointer(address), (count,), np.float32)


@inlined
def exp_of_negative(x):
    """exp(x) for -87.33 <= x <= 0, where nothing underflows: 2^n times a polynomial on [-ln 2 / 2, ln 2 / 2]."""
    n = np.float32(np.int32(x * np.float32(1.44269504) - np.float32(0.5)))  # truncation rounds, as x <= 0
    r = multiply_add(n, np.float32(-0.693359375), x)
    r = multiply_add(n, np.float32(2.12194440e-4), r)
    p = np.float32(1.9875691500e-4)
    p = multiply_add(p, r, np.float32(1.3981999507e-3))
    p = multiply_add(p, r, np.float32(8.3334519073e-3))
    p = multiply_add(p, r, np.float32(4.1665795894e-2))
    p = multiply_add(p, r, np.float32(1.6666665459e-1))
    p = multiply_add(p, r, np.float32(5.0000001201e-1))
    p = multiply_add(p, r * r, r + np.float32(1.0))
    return p * as_float((np.int32(n) + np.int32(127)) << np.int32(23))


@inlined
def log_one_plus(e, inverse):
    """log(1 + e) for e in [0, 1], given 1 / ((1 + e) (2 + e)): 2 atanh(t), t = e / (2 + e) being at most 1 / 3."""
    t = e * (np.float32(1.0) + e) * inverse
    square = t * t
    p = multiply_add(np.float32(0.0858), square, np.float32(0.0909090909))  # 1 / 13 and all that follows, 1 / 11
    p = multiply_add(p, square, np.float32(0.1111111111))
    p = multiply_add(p, square, np.float32(0.1428571429))
    p = multiply_add(p, square, np.float32(0.2))
    p = multiply_add(p, square, np.float32(0.3333333333))
    return np.float32(2.0) * multiply_add(p * square, t, t)


@inlined
def terms(logit, z):
    """log sigmoid(s) and sign * sigmoid(-s), s = sign * logit, sign = 2 z - 1; not a number where the logit is none."""
    sign = np.float32(2.0) * z - np.float32(1.0)
    s = sign * logit
    magnitude = -abs(s)
    e = exp_of_negative(np.float32(-87.33) if magnitude < np.float32(-87.33) else magnitude)
    inverse = np.float32(1.0) / ((np.float32(1.0) + e) * (np.float32(2.0) + e))
    larger = (np.float32(2.0) + e) * inverse  # sigmoid(|s|)
    smaller = e * larger
    if s >= np.float32(0.0):
        return -log_one_plus(e, inverse), sign * smaller
    return s - log_one_plus(e, inverse), sign * larger


def score_terms(address):
    """Table: pieces taken, count, then the addresses of logits, z, log-probabilities and scores."""
    table = carray(pointer(address), (6,), np.int64)
    first = PIECE * take(address)
    while first < table[1]:
        count = min(PIECE, table[1] - first)
        logits, z = floats(table[2] + 4 * first, count), floats(table[3] + 4 * first, count)
        log_prob, score = floats(table[4] + 4 * first, count), floats(table[5] + 4 * first, count)
        for i in range(count):
            log_prob[i], score[i] = terms(logits[i], z[i])
        first = PIECE * take(address)


def log_prob_terms(address):
    """Table: pieces taken, count, then the addresses of logits, z and log-probabilities."""
    table = carray(pointer(address), (5,), np.int64)
    first = PIECE * take(address)
    while first < table[1]:
        count = min(PIECE, table[1] - first)
        logits, z = floats(table[2] + 4 * first, count), floats(table[3] + 4 * first, count)
        log_prob = floats(table[4] + 4 * first, count)
        for i in range(count):
            log_prob[i] = terms(logits[i], z[i])[0]
        first = PIECE * take(address)


@inlined
def update_piece(parameter, gradient, squares_address, settings, roots, root):
    """RMSprop on some numbers, rounded as torch rounds: every line is one of its operations."""
    count = len(parameter)
    squares = floats(squares_address, count)
    decay, smoothing, rest, epsilon, step = settings[0], settings[1], settings[2], settings[3], settings[4]
    for i in range(count):
        g = multiply_add(parameter[i], decay, gradient[i])
        squares[i] = multiply_add(rest * g, g, smoothing * squares[i])
    if root != 0:
        call_root(root, count, squares_address, roots.ctypes.data, MKL_ROOT_MODE)
    else:
        for i in range(count):
            roots[i] = np.sqrt(squares[i])
    for i in range(count):
        g = multiply_add(parameter[i], decay, gradient[i])
        parameter[i] += (step * g) / (roots[i] + epsilon)


def update_rmsprop(address):
    """Table: pieces taken, parameters, address of MKL's root or 0; then UPDATE_COLUMNS numbers per parameter.

    These are: addresses of parameter, gradient, running mean of squares and settings; count; pieces up to its end.
    """
    head = carray(pointer(address), (3,), np.int64)
    table = carray(pointer(address + 24), (head[1], UPDATE_COLUMNS), np.int64)
    roots = np.empty(PIECE, np.float32)
    row, piece = 0, take(address)
    while True:
        while row < head[1] and piece >= table[row, 5]:
            row += 1
        if row == head[1]:
            return
        count = table[row, 4]
        before = table[row, 5] - (count + PIECE - 1) // PIECE  # pieces of earlier parameters
        first = (piece - before) * PIECE
        count = min(PIECE, count - first)
        parameter, gradient = floats(table[row, 0] + 4 * first, count), floats(table[row, 1] + 4 * first, count)
        update_piece(parameter, gradient, table[row, 2] + 4 * first, floats(table[row, 3], 5), roots, head[2])
        piece = take(address)


@cache
def compiled(function: Callable[[int], None]) -> Any:
    """One of the loops above as a C function, compiled at its first use; its `address` is for run_team."""
    return cfunc(types.void(types.int64), cache=True, **OPTIONS)(function)


def run(function: Callable[[int], None], table: Sequence[int], pieces: int) -> None:
    """Run a loop on its table, with as many threads as torch uses or as there are pieces of work."""
    numbers = np.array(table, dtype=np.int64)
    run_team(compiled(function).address, numbers.ctypes.data, min(torch.get_num_threads(), pieces))


def run_on(function: Callable[[int], None], *tensors: Tensor) -> None:
    """Run a loop whose table has the count and the addresses of tensors of one shape, all of them contiguous."""
    count = tensors[0].numel()
    run(function, [0, count, *(tensor.data_ptr() for tensor in tensors)], max(1, -(-count // PIECE)))


@cache
def mkl_root() -> int:
    """Address of the root that torch uses, 0 if it has none of MKL: MKL rounds otherwise than the processor does."""
    for library in sorted((Path(torch.__file__).parent / "lib").glob("libtorch_cpu.*")):
        try:
            return ctypes.cast(ctypes.CDLL(str(library)).vmsSqrt, ctypes.c_void_p).value or 0
        except (OSError, AttributeError):
            continue
    return 0
