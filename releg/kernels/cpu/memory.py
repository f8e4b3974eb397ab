"""The sets of changed units of one row, layer by layer, each remembered once.

What is flipped is a node: every single unit of every layer, then NONE, which is nothing at all, then the sets. Each
node is followed by one of the next layer: `follow` says which, and the change of f further down is that node's value.
The members of sets are needed only until the next layer is reached, so they lie in two halves of one array, for even
and for odd layers.
"""

from __future__ import annotations

import numpy as np

from releg.kernels.cpu.compile import inlined
from releg.kernels.cpu.layout import MEMBERS, TABLE
from releg.kernels.cpu.simd_memory import get, put


@inlined
def forget(scratch, layer):
    """Begin the sets of that layer: there are none."""
    scratch.firsts[layer + 1] = scratch.firsts[layer]
    for slot in range(scratch.slots.size):
        scratch.slots[slot] = -1


@inlined
def precede(layout, scratch, node, layer, start, count, mix):
    """Let a node be followed by the set found[start : start + count] of that layer, whose hash is mix."""
    none = scratch.linear.size
    after = none
    if count == 1:
        after = layout.layers[layer, TABLE] + np.int64(get(scratch.found, start))
    elif count > 1:
        after = none + 1 + remember(layout, scratch, layer, start, count, mix)
    put(scratch.follow, node, after)


@inlined
def remember(layout, scratch, layer, start, count, mix):
    """The number of a set; a new one if there was none."""
    last = scratch.slots.size - 1
    slot = np.int64(mix >> np.uint64(33)) & last
    number = np.int64(get(scratch.slots, slot))
    while number >= 0:
        if get(scratch.marked, number) == mix and same_members(scratch, number, start, count):
            return number
        slot = (slot + 1) & last
        number = np.int64(get(scratch.slots, slot))
    number = scratch.firsts[layer + 1]
    scratch.firsts[layer + 1] = number + 1
    put(scratch.slots, slot, number)
    to = layout.layers[layer, MEMBERS]
    if number > scratch.firsts[layer]:
        to = np.int64(get(scratch.starts, number - 1) + get(scratch.sizes, number - 1))
    put(scratch.marked, number, mix)
    put(scratch.starts, number, to)
    put(scratch.sizes, number, count)
    for at in range(count):
        put(scratch.members, to + at, get(scratch.found, start + at))
    return number


@inlined
def same_members(scratch, number, start, count):
    """Whether a remembered set is the one found: hashes alone would leave a chance of error."""
    same, other = get(scratch.sizes, number) == count, np.int64(get(scratch.starts, number))
    at = 0
    while same and at < count:
        same = get(scratch.members, other + at) == get(scratch.found, start + at)
        at += 1
    return same
