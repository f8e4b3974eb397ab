# mypy: ignore-errors
# numba infers the types of compiled functions from their arguments; the docstrings describe those
"""Loops over single numbers that torch would need several passes for, compiled by numba for float32 on the CPU.

Each loop is a C function of one pointer, so that torch's own threads can run it (releg/compiled/threads.py): the
pointer is the address of a table of int64, whose first number counts the pieces of work taken so far. numba's cache
on disk checks only this file for changes, so all compiled code is in it.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from llvmlite import binding, ir
from numba import carray, njit, types
from numba.extending import intrinsic
from torch import Tensor

from releg.compiled.kept_code import compile_kept
from releg.compiled.threads import run_team

HAS_FMA = bool(binding.get_host_cpu_features().get("fma", False))  # torch's own loops use it where there is one
PIECE = 2048  # numbers per piece of work: their arrays stay in the first cache
UPDATE_COLUMNS = 7  # of the table of `update_rmsprop`, per parameter
TWISTER = 624  # numbers of MT19937's state
SMALLEST_LOGIT = np.float32(-88.72284)  # below it exp(-logit) overflows, and torch's mean is zero
MKL_ROOT_MODE = 0x00140102  # VML_HA | VML_FTZDAZ_OFF | VML_ERRMODE_IGNORE: how torch asks for roots

OPTIONS: dict[str, Any] = {"error_model": "numpy"}
inlined = njit(forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, **OPTIONS)
# Sums may be taken in any order, here in as many parts as a vector has; what must not be reordered is a multiply_add
summing = njit(forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, fastmath={"reassoc"}, **OPTIONS)


@intrinsic
def pointer(typing_context: Any, address: Any) -> Any:
    """The address as a pointer that carray understands."""
    return types.voidptr(types.int64), lambda _, builder, __, args: builder.inttoptr(
        args[0], ir.IntType(8).as_pointer()
    )


@intrinsic
def take(typing_context: Any, address: Any) -> Any:
    """Add one to the int64 at the address, atomically, and return the old value."""

    def generate(_: Any, builder: Any, __: Any, args: Any) -> Any:
        number = ir.IntType(64)
        return builder.atomic_rmw("add", builder.inttoptr(args[0], number.as_pointer()), number(1), "monotonic")

    return types.int64(types.int64), generate


@intrinsic
def multiply_add(typing_context: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once if the machine can do that: a library call would be a hundred times as slow."""

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
def sigmoids(logit):
    """sigmoid(|logit|), sigmoid(-|logit|) and log(1 + exp(-|logit|)); not a number where the logit is none."""
    magnitude = -abs(logit)
    e = exp_of_negative(np.float32(-87.33) if magnitude < np.float32(-87.33) else magnitude)
    inverse = np.float32(1.0) / ((np.float32(1.0) + e) * (np.float32(2.0) + e))
    larger = (np.float32(2.0) + e) * inverse
    return larger, e * larger, log_one_plus(e, inverse)


@summing
def score_row(logits, z, score):
    """Sum of log sigmoid(s) over the row; score = sign * sigmoid(-s), s = sign * logit, sign = 2 z - 1."""
    total = 0.0
    for i in range(len(logits)):
        larger, smaller, rest = sigmoids(logits[i])
        sign = np.float32(2.0) * z[i] - np.float32(1.0)
        s = sign * logits[i]
        score[i] = sign * (smaller if s >= np.float32(0.0) else larger)
        total += np.float64((np.float32(0.0) if s >= np.float32(0.0) else s) - rest)
    return total


@summing
def sample_row(logits, noise, z, score, slope):
    """The same for z = 1 where noise < mean, which is stored too, and the slope mean (1 - mean)."""
    total = 0.0
    for i in range(len(logits)):
        larger, smaller, rest = sigmoids(logits[i])
        mean = larger if logits[i] >= np.float32(0.0) else smaller
        mean = np.float32(0.0) if logits[i] < SMALLEST_LOGIT else mean
        on = np.float32(1.0) if noise[i] < mean else np.float32(0.0)
        sign = np.float32(2.0) * on - np.float32(1.0)
        s = sign * logits[i]
        z[i] = on
        score[i] = sign * (smaller if s >= np.float32(0.0) else larger)
        slope[i] = larger * smaller
        total += np.float64((np.float32(0.0) if s >= np.float32(0.0) else s) - rest)
    return total


@inlined
def row_of(address, row, width, spare):
    """A row of the numbers at the address; if the address is 0, spare room for results that nobody wants."""
    return spare if address == 0 else floats(address + 4 * row * width, width)


def score_layer(address):
    """Table: pieces taken, rows per piece, rows, width, numbers from one row of logits to the next, then addresses.

    These are of logits, noise (0: z is given), z, log-probabilities per row, scores and slopes (0: not wanted).
    """
    table = carray(pointer(address), (11,), np.int64)
    at_once, rows, width, stride = table[1], table[2], table[3], table[4]
    log_prob = floats(table[8], rows)
    spare = np.empty(width, np.float32), np.empty(width, np.float32)  # two: where arrays overlap, loops are slow
    first = at_once * take(address)
    while first < rows:
        for row in range(first, min(first + at_once, rows)):
            logits, z = floats(table[5] + 4 * row * stride, width), floats(table[7] + 4 * row * width, width)
            score = row_of(table[9], row, width, spare[0])
            if table[6] == 0:
                log_prob[row] = score_row(logits, z, score)
            else:
                noise, slope = floats(table[6] + 4 * row * width, width), row_of(table[10], row, width, spare[1])
                log_prob[row] = sample_row(logits, noise, z, score, slope)
        first = at_once * take(address)


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

    These are: addresses of parameter, gradient, running mean of squares, settings and number of steps, which is
    counted up; count; pieces up to its end.
    """
    head = carray(pointer(address), (3,), np.int64)
    table = carray(pointer(address + 24), (head[1], UPDATE_COLUMNS), np.int64)
    roots = np.empty(PIECE, np.float32)
    row = 0
    while True:
        piece = take(address)
        while row < head[1] and piece >= table[row, 6]:
            row += 1
        if row == head[1]:
            return
        count = table[row, 5]
        before = table[row, 6] - (count + PIECE - 1) // PIECE  # pieces of earlier parameters
        first = (piece - before) * PIECE
        if first == 0:
            floats(table[row, 4], 1)[0] += np.float32(1.0)
        count = min(PIECE, count - first)
        parameter, gradient = floats(table[row, 0] + 4 * first, count), floats(table[row, 1] + 4 * first, count)
        update_piece(parameter, gradient, table[row, 2] + 4 * first, floats(table[row, 3], 5), roots, head[2])


@inlined
def twist(above, below):
    """What MT19937 makes of the upper bit of one number and the lower bits of the next."""
    mixed = np.uint32((above & np.uint32(0x80000000)) | (below & np.uint32(0x7FFFFFFF)))
    return np.uint32(mixed >> np.uint32(1)) ^ (np.uint32(0x9908B0DF) if below & np.uint32(1) else np.uint32(0))


@inlined
def tempered(y):
    """A number of MT19937 from one of its state; the casts keep numba from computing with 64 bits."""
    y = np.uint32(y ^ np.uint32(y >> np.uint32(11)))
    y = np.uint32(y ^ (np.uint32(y << np.uint32(7)) & np.uint32(0x9D2C5680)))
    y = np.uint32(y ^ (np.uint32(y << np.uint32(15)) & np.uint32(0xEFC60000)))
    return np.uint32(y ^ np.uint32(y >> np.uint32(18)))


@inlined
def renew(state):
    """The next TWISTER numbers of MT19937, in place; the two loops look ahead and back by far more than a vector."""
    ahead = 397
    for i in range(TWISTER - ahead):
        state[i] = np.uint32(state[i + ahead] ^ twist(state[i], state[i + 1]))
    for i in range(TWISTER - ahead, TWISTER - 1):
        state[i] = np.uint32(state[i + ahead - TWISTER] ^ twist(state[i], state[i + 1]))
    state[TWISTER - 1] = state[ahead - 1] ^ twist(state[TWISTER - 1], state[0])


def draw_uniform(address):
    """Table: address of the state of a torch.Generator, as get_state answers it; of float32 to fill; their count.

    Numbers and state afterwards are those of torch.rand.
    """
    table = carray(pointer(address), (3,), np.int64)
    left = carray(pointer(table[0] + 8), (1,), np.int32)  # of the numbers that are ready, one more
    following = carray(pointer(table[0] + 16), (1,), np.int64)
    words = carray(pointer(table[0] + 24), (TWISTER,), np.uint64)
    state = np.empty(TWISTER, np.uint32)
    for i in range(TWISTER):
        state[i] = words[i]
    done = 0
    while done < table[2]:
        if left[0] == 1:
            renew(state)
            left[0], following[0] = TWISTER + 1, 0
        first, count = following[0], min(table[2] - done, left[0] - 1)
        out = floats(table[1] + 4 * done, count)
        for i in range(count):
            low = np.int32(tempered(state[first + i]) & np.uint32(0xFFFFFF))
            out[i] = np.float32(low) * np.float32(2.0**-24)
        left[0] -= count
        following[0] += count
        done += count
    for i in range(TWISTER):
        words[i] = state[i]


@inlined
def bent(c, w, step, leak):
    """A leaky unit at c + w step, and its slope there, 1 or the leak."""
    inner = multiply_add(w, step, c)
    slope = np.float32(1.0) if inner > np.float32(0.0) else leak
    return inner * slope, slope


@inlined
def leaky_row(c, w, weights, steps, answers, leak):
    """answers[o, j] += sum over units h of weights[o, h] leaky(c[h] + w[h] steps[j])."""
    for h in range(len(w)):
        for j in range(len(steps)):
            value, _ = bent(c[h], w[h], steps[j], leak)
            answers[0, j] = multiply_add(weights[0, h], value, answers[0, j])
            answers[1, j] = multiply_add(weights[1, h], value, answers[1, j])


@summing
def leaky_row_gradients(c, w, weights, steps, outer, leak, gradients):
    """Derivatives of sum(outer * answers) w.r.t. c, w and both rows of weights: the rows of gradients."""
    for h in range(len(w)):
        of_c = of_w = first = second = np.float32(0.0)
        for j in range(len(steps)):
            value, slope = bent(c[h], w[h], steps[j], leak)
            inner = slope * multiply_add(weights[0, h], outer[0, j], weights[1, h] * outer[1, j])
            of_c += inner
            of_w += inner * steps[j]
            first += outer[0, j] * value
            second += outer[1, j] * value
        gradients[0, h], gradients[1, h], gradients[2, h], gradients[3, h] = of_c, of_w, first, second


def leaky_net(address):
    """Table: rows taken, rows, units, steps, then addresses.

    These are of the leak, c (rows, units), w (units), weights (2, units), steps (rows, steps), answers or their outer
    derivatives (rows, 2, steps), and gradients (rows, 4, units), or 0 if answers are wanted.
    """
    table = carray(pointer(address), (11,), np.int64)
    rows, units, count = table[1], table[2], table[3]
    leak, w = floats(table[4], 1)[0], floats(table[6], units)
    weights = carray(pointer(table[7]), (2, units), np.float32)
    row = take(address)
    while row < rows:
        c, steps = floats(table[5] + 4 * row * units, units), floats(table[8] + 4 * row * count, count)
        answers = carray(pointer(table[9] + 8 * row * count), (2, count), np.float32)
        if table[10] == 0:
            leaky_row(c, w, weights, steps, answers, leak)
        else:
            gradients = carray(pointer(table[10] + 16 * row * units), (4, units), np.float32)
            leaky_row_gradients(c, w, weights, steps, answers, leak, gradients)
        row = take(address)


@cache
def compiled(function: Callable[[int], None]) -> Any:
    """One of the loops above as a C function, compiled at its first use; its `address` is for run_team."""
    return compile_kept(function, OPTIONS)


def run(function: Callable[[int], None], table: Sequence[int], pieces: int) -> None:
    """Run a loop on its table, with as many threads as torch uses or as there are pieces of work."""
    numbers = array("q", table)
    run_team(compiled(function).address, numbers.buffer_info()[0], min(torch.get_num_threads(), pieces))


def run_layer(
    logits: Tensor,
    z: Tensor,
    log_prob: Tensor,
    score: Tensor | None = None,
    noise: Tensor | None = None,
    slope: Tensor | None = None,
) -> None:
    """Fill log_prob (N,), score and slope (N, H) if given, and z (N, H) if there is noise to draw it from."""
    rows, width = z.shape
    at_once = max(1, PIECE // width)
    arrays = (logits, noise, z, log_prob, score, slope)
    addresses = [0 if values is None else values.data_ptr() for values in arrays]
    run(score_layer, [0, at_once, rows, width, logits.stride(0), *addresses], -(-rows // at_once))


@cache
def mkl_root() -> int:
    """Address of the root that torch uses, 0 if torch has no MKL: MKL rounds differently from the processor."""
    for library in sorted((Path(torch.__file__).parent / "lib").glob("libtorch_cpu.*")):
        try:
            return ctypes.cast(ctypes.CDLL(str(library)).vmsSqrt, ctypes.c_void_p).value or 0
        except (OSError, AttributeError):
            continue
    return 0
