"""The sets of units that change together in one row of the CPU kernel, each remembered once.

What is flipped is a node: every single unit of every layer, then `nothing`, which is nothing at all, then the sets that
were met. A set is found as a mask over the active units of its layer, those that change with any node of the layer
above. There are few of them, since most units are too far from their threshold for any weight.
"""

from __future__ import annotations

import numpy as np

from releg.kernels.cpu.layout import LAYER, LINK
from releg.kernels.cpu.vector import at, count_bits, inlined, lowest_bit, record_at

F64, I32, I64, U64 = np.float64, np.int32, np.int64, np.uint64
WORD = 32  # bits of a mask's word
SPREADS = U64(0x9E3779B97F4A7C15)  # spreads hashes over the table


@inlined
def nothing(call):
    """The node that is nothing at all: it comes after the units."""
    last = record_at(LAYER, call.layers, call.depth - 1)
    return last.first + last.size


@inlined
def active_of(scratch, index):
    """The list of the active units of a layer."""
    return at(I32, scratch.active, index * (scratch.widest + WORD + 1))


@inlined
def words_of(scratch, index):
    """How many words a mask over the active units of a layer has."""
    return max(1, (at(I64, scratch.met, 0)[index] + WORD - 1) // WORD)


@inlined
def forget(scratch, index):
    """Begin the sets of that layer: there are none."""
    firsts, table = at(I64, scratch.firsts, 0), at(I32, scratch.table, 0)
    firsts[index + 1] = firsts[index]
    for entry in range(scratch.last_entry + 1):
        table[entry] = -1


@inlined
def size_of(mask, stride, words):
    """How many units are in the set of a mask, whose words are `stride` apart."""
    count = 0
    for word in range(words):
        count += count_bits(U64(mask[word * stride]))
    return count


@inlined
def first_of(mask, stride, words):
    """Where the first unit of a mask is among the active ones; behind the last word if there is none."""
    word = 0
    while word + 1 < words and mask[word * stride] == 0:
        word += 1
    return word * WORD + lowest_bit(U64(mask[word * stride]) | (U64(1) << U64(WORD)))


@inlined
def number_of(number, call, scratch, index, slot, mask, stride, words, count):
    """The number of a set of several units of that layer; a new one if it was not met before."""
    table, hashes, mix, power = at(I32, scratch.table, 0), at(U64, scratch.hashes, 0), U64(mask[0]), call.multiplier
    if words > 1:
        mix |= U64(mask[stride]) << U64(WORD)
    for word in range(2, words):
        mix += U64(mask[word * stride]) * power
        power *= call.multiplier
    entry = I64((mix * SPREADS) >> U64(40)) & scratch.last_entry
    n = I64(table[entry])
    while n >= 0:
        if hashes[n] == mix and (words <= 2 or is_set(scratch, n, mask, stride, words, count)):
            return n
        entry = (entry + 1) & scratch.last_entry
        n = I64(table[entry])
    firsts = at(I64, scratch.firsts, index)
    n = firsts[1]
    firsts[1] = n + 1
    table[entry], hashes[n] = n, mix
    starts, sizes = at(I32, scratch.starts, 0), at(I32, scratch.sizes, 0)
    layer = record_at(LAYER, call.layers, index)
    start = layer.members
    if n > firsts[0]:
        start = I64(starts[n - 1]) + sizes[n - 1]
    starts[n], sizes[n] = start, count
    at(F64, scratch.products, 0)[n] = 1.0
    value = add_members(number, call, scratch, index, slot, start, mask, stride, words)
    at(F64, scratch.values, nothing(call) + 1)[n] = value
    return n


@inlined
def is_set(scratch, n, mask, stride, words, count):
    """Whether set n is that of the mask: of more than two words, the hash alone would leave a chance of error."""
    same, c = at(I32, scratch.sizes, 0)[n] == count, 0
    places = at(I32, scratch.places, at(I32, scratch.starts, 0)[n])
    while same and c < count:
        word = I64(places[c]) // WORD
        same = word < words and (U64(mask[word * stride]) >> U64(places[c] % WORD)) & U64(1) != 0
        c += 1
    return same


@inlined
def add_members(number, call, scratch, index, slot, start, mask, stride, words):
    """The units of a mask into members, and where their generative ratios begin into rows; the sum of linear terms."""
    members, active, rows = at(I32, scratch.members, 0), active_of(scratch, index), at(I64, scratch.rows, 0)
    places = at(I32, scratch.places, 0)
    layer, link = record_at(LAYER, call.layers, index), record_at(LINK, call.links, 2 * index)
    signs, linear = at(number, layer.signs, slot * layer.width), at(F64, layer.linear, slot * layer.width)
    value = 0.0
    for word in range(words):
        bits = U64(mask[word * stride])
        while bits != 0:
            place = word * WORD + lowest_bit(bits)
            bits &= bits - U64(1)
            k = I64(active[place])
            members[start], places[start] = k, place
            rows[start] = (2 * k + I64(signs[k] < 0)) * link.stride
            value += linear[k]
            start += 1
    return value


@inlined
def sort_sets(scratch, index):
    """The sets of a layer into order, by size: loops over members then end where the last one did, as predicted."""
    first, last = at(I64, scratch.firsts, 0)[index], at(I64, scratch.firsts, 0)[index + 1]
    order, sizes, bins = at(I32, scratch.order, 0), at(I32, scratch.sizes, 0), at(I32, scratch.bins, 0)
    most = 1
    for n in range(first, last):
        most = max(most, I64(sizes[n]))
    for size in range(most + 2):
        bins[size] = 0
    for n in range(first, last):
        bins[sizes[n] + 1] += 1
    for size in range(most + 1):
        bins[size + 1] += bins[size]
    for n in range(first, last):
        order[bins[sizes[n]]] = n
        bins[sizes[n]] += 1
