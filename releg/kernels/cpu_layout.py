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
LAYER_COLUMNS = 13

LIMIT = 64.0  # sum of |d| in one lane of a product: exp(64) fits float32, exp(8 * 64) * FAR fits float64
SET_LIMIT = 512.0  # sum of |d| in all lanes of the product of a set
FAR = 1e80  # a running product outside [1/FAR, FAR] is turned into its logarithm

# What the kernel is called with: one array of int64, addresses and numbers
(PHASE, STORE, STORE_SIZE, OUT, ROWS, ENTROPY, DEPTH, WORKERS, LINKS, LAYERS, SPARE, SOURCES, COUNTERS) = range(13)
FIELDS = 13  # from here on, for each worker, the address and the length of each array of its Scratch

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
    """What one worker needs for one row of the path; nothing in it survives the row."""

    linear: Any  # (sum of sizes,) float64 the linear terms of G of every single unit
    table: Any  # (sum of sizes,) float64 G of every single unit
    logs: Any  # (H,) float64 change of f so far
    products: Any  # (H,) float64 factors whose logarithm is still to be added
    before: Any  # (depth,) float64 total when an entry's evaluation was begun
    values: Any  # (E,) float64 G of an entry's set
    order: Any  # (H + 3,) int32 units of one sign
    first: Any  # (H,) int32 first hit of a unit, or -1
    hit_unit: Any  # (hits,) int32 changed unit
    hit_next: Any  # (hits,) int32 next hit of the same unit, or -1
    slots: Any  # (2**n,) int32 hash table: an entry, or -1
    entries: Any  # (E, 4) int32 layer, start, count, slot
    arena: Any  # (A,) int32 members of sets, each ascending; remembered ones first
    pending: Any  # (depth,) int32 entries under evaluation
    rows: Any  # (2, H + 3) int64 where the ratios of a set's members are, for the generative and the inference link
    masks: Any  # (blocks,) uint32 which targets change, one bit each
    words: Any  # (blocks / 2,) uint64 the same memory
    used: Any  # (2,) int64 number of entries, of numbers in the arena
