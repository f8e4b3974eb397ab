"""The sets of units that change together in one row of the CPU kernel, each remembered once.

A node is what gets flipped. Nodes are numbered: every single unit of every layer, then `nothing` (the empty set), then
the sets found so far. A set is found as a mask. Masks after single units span the active units of their layer: the few
units that change with any of them. Masks after sets span the whole layer. The two kinds are remembered separately;
hardly any set occurs as both.
"""

from __future__ import annotations

import numpy as np

from releg.kernels.cpu.layout import LAYER, WORD
from releg.kernels.cpu.vector import at, count_bits, inlined, lowest_bit, record_at

I32, I64, U64 = np.int32, np.int64, np.uint64
SPREADS = U64(0x9E3779B97F4A7C15)  # spreads hashes over the table


@inlined
def nothing(call):
    """The node of the empty set: it comes after the units."""
    last = record_at(LAYER, call.layers, call.depth - 1)
    return last.first + last.width


@inlined
def forget(scratch, expected):
    """Empty the hash table, for as many masks of another kind as are expected: it will be half full at most."""
    entries, table = 4, at(I32, scratch.table, 0)
    while entries < 2 * expected:
        entries *= 2
    for entry in range(entries):
        table[entry] = -1
    scratch.last_entry = entries - 1


@inlined
def number_of(call, scratch, index, mask_at, words, count, units, usual):
    """The number of a set of several units of that layer; a new one if it was not met before.

    Args:
        call: the record of the call.
        scratch: the worker's.
        index: the layer.
        mask_at: address of the mask, which must stay there while masks of this kind are looked up.
        words: how many it has.
        count: how many units it has.
        units: the unit that each of its bits stands for.
        usual: a word seldom has more units than this.
    """
    mask, table, hashes = at(U64, mask_at, 0), at(I32, scratch.table, 0), at(U64, scratch.hashes, 0)
    origins, mix, power = at(I64, scratch.origins, 0), mask[0], call.multiplier
    for word in range(1, words):
        mix += mask[word] * power
        power *= call.multiplier
    entry = I64((mix * SPREADS) >> U64(40)) & scratch.last_entry
    n = I64(table[entry])
    while n >= 0:
        # beyond one word, equal hashes do not prove equal masks
        if hashes[n] == mix and (words == 1 or is_same(mask, at(U64, origins[n], 0), words)):
            return n
        entry = (entry + 1) & scratch.last_entry
        n = I64(table[entry])
    n = at(I64, scratch.firsts, index)[1]
    at(I64, scratch.firsts, index)[1] = n + 1
    table[entry], hashes[n], origins[n] = n, mix, mask_at
    start = end_of_members(call, scratch, index, n)
    at(I32, scratch.starts, 0)[n], at(I32, scratch.sizes, 0)[n] = start, count
    list_units(mask, words, units, at(I32, scratch.members, start), usual)
    return n


@inlined
def is_same(mask, other, words):
    """Whether two masks have the same words."""
    word = 0
    while word < words and mask[word] == other[word]:
        word += 1
    return word == words


@inlined
def end_of_members(call, scratch, index, n):
    """Where the members of the layer's set n begin: behind those of the set before it."""
    if n == at(I64, scratch.firsts, 0)[index]:
        return record_at(LAYER, call.layers, index).members
    return I64(at(I32, scratch.starts, 0)[n - 1]) + at(I32, scratch.sizes, 0)[n - 1]


@inlined
def list_units(mask, words, units, members, usual):
    """Write the units of a mask into members.

    For each word it writes at least `usual` units, even if the word has fewer: the number is unpredictable, and a
    mispredicted branch costs more. Later words overwrite the surplus.
    """
    end = 0
    for word in range(words):
        bits, place = mask[word], end
        end += count_bits(bits)
        for more in range(usual):
            members[place + more], bits = units[word * WORD + lowest_bit(bits)], bits & (bits - U64(1))
        place += usual
        while bits != 0:
            members[place], bits = units[word * WORD + lowest_bit(bits)], bits & (bits - U64(1))
            place += 1


@inlined
def size_of(mask, words):
    """How many units are in the set of a mask."""
    count = 0
    for word in range(words):
        count += count_bits(mask[word])
    return count


@inlined
def first_of(mask, words):
    """The place of the first bit of a mask that has one."""
    word = 0
    while word + 1 < words and mask[word] == 0:
        word += 1
    return word * WORD + lowest_bit(mask[word])


@inlined
def sort_sets(scratch, index):
    """Sort the sets of a layer by size: loops over members then end where the last one did, as predicted."""
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
