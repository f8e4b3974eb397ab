"""Where things are in the CPU kernel's memory, and the limits within which it multiplies."""

from __future__ import annotations

from typing import Any, NamedTuple

# Columns of Layout.links. Row 2 l: from layer l to what it generates; row 2 l + 1: from layer l to the next deeper one.
UNITS = 0  # sizes
TARGETS = 1
STRIDE = 2  # of everything that has one number per target
PLAIN = 3  # (UNITS, TARGETS) weights
RATIO = 4  # (UNITS, TARGETS) exp(weights)
INVERSE = 5  # (UNITS, TARGETS) exp(-weights)
TOP = 6  # (UNITS + 1,) largest |weight|; last, the largest of all
SPREAD = 7  # (UNITS + 1,) sum of |weights|; last, the largest of all
TOTAL = 8  # (UNITS,) sum of weights
LOGITS = 9  # (rows, TARGETS) of the targets' distribution
STAY = 10  # (rows, TARGETS) sigmoid(-logits)
MOVE = 11  # (rows, TARGETS) sigmoid(logits)
MATCH = 12  # (rows, UNITS) values of the targets @ weights
LINK_COLUMNS = 13

# Columns of Layout.layers
SIZE = 0
WIDTH = 1  # stride of what has one number per unit: SIZE rounded up to whole blocks
SIGNS = 2  # (rows, SIZE) s: +1 for a unit that is 0, -1 for one that is 1
MARGINS = 3  # (rows, SIZE) how far the logit has to move in the direction of s before the unit changes
THRESHOLDS = 4  # (rows, SIZE) s * exp(s * margin): what exp(d) has to cross, upwards if s is +1
REACH = 5  # (SIZE,) largest |weight| into the unit
OWN = 6  # (rows, SIZE) logits of q(z[l] | z[l-1])
OWN_STRIDE = 7
NEXT = 8  # (rows, SIZE) logits of p(z[l] | z[l+1])
NEXT_STRIDE = 9
ACROSS = 10  # (size of the next layer, SIZE) V, inference weights into the next layer
CROSS = 11  # (size of the next layer, SIZE) W.T - V, W generative weights out of it; W.T alone for entropies
TABLE = 12  # where the layer's units begin in arrays over all units
MEMBERS = 13  # where the members of the layer's sets begin in Scratch.members
LAYER_COLUMNS = 14

LIMIT = 64.0  # sum of |d| in one lane of a product: exp(64) fits float32, exp(8 * 64) * FAR fits float64
SET_LIMIT = 512.0  # sum of |d| in all lanes of the product of a set
FAR = 1e80  # a running product outside [1/FAR, FAR] is turned into its logarithm

# What the kernel is called with: one array of int64, addresses and numbers
(PHASE, STORE, STORE_SIZE, OUT, ROWS, ENTROPY, DEPTH, WORKERS, LINKS, LAYERS, SPARE, SOURCES, COUNTERS, SLOTS) = range(
    14
)
FIELDS = 14  # from here on, for each worker and each of its SLOTS, address and length of each array of a Scratch

# Columns of the table of addresses of what torch owns; rows are links for the first two, layers for the others
LINK_WEIGHT = 0  # (TARGETS, UNITS)
LINK_LOGITS = 1  # (rows, TARGETS)
LAYER_VALUES = 2  # (rows, SIZE) z
LAYER_LOGITS = 3  # (rows, SIZE) logits of q(z[l] | z[l-1])
SOURCE_COLUMNS = 4


class Layout(NamedTuple):
    """Offsets into the store, sizes and strides."""

    links: Any  # (2 depth, LINK_COLUMNS) int64
    layers: Any  # (depth, LAYER_COLUMNS) int64
    spare: Any  # (workers + 1, 2) int64: two rows for each worker to write to; last, a row of ones


class Scratch(NamedTuple):
    """What one worker needs for one of the rows that it has in hand; nothing in it survives the row."""

    linear: Any  # (sum of sizes,) float64 the linear terms of G of every single unit
    values: Any  # (nodes,) float64 G of every node, see memory
    logs: Any  # (H,) float64 change of f so far
    products: Any  # (H,) float64 factors whose logarithm is still to be added
    spins: Any  # (H + 3,) float64 s of a set's members
    order: Any  # (2 (H + 4),) int32 units that are 0, units that are 1
    follow: Any  # (nodes,) int32 the node of the next layer that follows
    counts: Any  # (H,) int32 how many units of the next layer change with a unit
    found: Any  # (H, ...) int32 the units that change with a unit, or a set at hand: one list each, ascending
    members: Any  # (A,) int32 members of all sets of two layers, each list ascending
    slots: Any  # (2**n,) int32 hash table: the number of a set, or -1
    starts: Any  # (sets,) int32 where a set's members begin
    sizes: Any  # (sets,) int32 how many it has
    places: Any  # (H + 3,) int64 a set's members
    rows: Any  # (H + 8,) int64 where the ratios of a set's members are
    firsts: Any  # (depth + 1,) int64 number of the first set of each layer
    marks: Any  # (H,) uint64 random bits of each unit; those of a set's members, exclusive or, are its hash
    hashes: Any  # (H,) uint64 hash of the set that changes with a unit
    marked: Any  # (sets,) uint64 hash of each set
    masks: Any  # (blocks,) uint32 which targets change, one bit each
    words: Any  # (blocks / 2,) uint64 the same memory
