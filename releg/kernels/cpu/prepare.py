"""Tables of the CPU kernel: those of the weights, once per call, and those of one row of the path."""

from __future__ import annotations

from releg.kernels.cpu.compile import inlined, step
from releg.kernels.cpu.layout import (
    ACROSS,
    CROSS,
    INVERSE,
    LAYER_LOGITS,
    LAYER_VALUES,
    LINK_LOGITS,
    LINK_WEIGHT,
    LOGITS,
    MARGINS,
    MOVE,
    OWN,
    PLAIN,
    RATIO,
    REACH,
    SIGNS,
    SIZE,
    SPREAD,
    STAY,
    STRIDE,
    TARGETS,
    THRESHOLDS,
    TOP,
    TOTAL,
    UNITS,
    WIDTH,
)
from releg.kernels.cpu.simd import LANES, add_scaled, fill
from releg.kernels.cpu.simd_memory import copy_in, get, prefetch, put, take, vector_at
from releg.kernels.cpu.simd_tables import bounds, exponentials, sigmoids, thresholds

AHEAD = 16  # rows of a weight matrix that are under way while one is read: the machine does not foresee them
GROUP = 16  # units prepared at once: columns of a weight matrix that share cache lines


@step
def prepare_weights(store, layout, sources, counters, entropy):
    """Transposes, exponentials and bounds of all weights, for as many groups of units as this worker gets hold of."""
    links, link, first = layout.links, 0, 0  # `first` is the number of the link's first group
    group = take(counters, 0)
    while link < links.shape[0]:
        groups = (links[link, UNITS] + GROUP - 1) // GROUP
        if group >= first + groups:
            first += groups
            link += 1
            continue
        begin = (group - first) * GROUP
        end = min(begin + GROUP, links[link, UNITS])
        transpose(store, links, link, sources, begin, end)
        for unit in range(begin, end):
            prepare_unit(store, links, link, unit)
            if link % 2 == 0 and link > 0:
                prepare_crossing(store, layout, link, unit, sources[link - 1, LINK_WEIGHT], entropy)
        group = take(counters, 0)


@inlined
def transpose(store, links, link, sources, begin, end):
    """Columns of the weight matrix (targets, units) into rows of PLAIN."""
    units, targets, stride = links[link, UNITS], links[link, TARGETS], links[link, STRIDE]
    weight = vector_at(sources[link, LINK_WEIGHT], units * targets, store.dtype)
    plain = links[link, PLAIN]
    for j in range(targets):
        prefetch(weight, (j + AHEAD) * units + begin)
        for unit in range(begin, end):
            put(store, plain + unit * stride + j, get(weight, j * units + unit))


@inlined
def prepare_unit(store, links, link, unit):
    """Exponentials and bounds of a unit's weights."""
    stride = links[link, STRIDE]
    steps, plain = stride // LANES, links[link, PLAIN] + unit * stride
    exponentials(store, links[link, RATIO] + unit * stride, plain, 1, steps)
    if link > 0:  # sets are never flipped in the shallowest layer
        exponentials(store, links[link, INVERSE] + unit * stride, plain, -1, steps)
    top, spread, total = bounds(store, plain, steps)
    store[links[link, TOP] + unit], store[links[link, SPREAD] + unit] = top, spread
    store[links[link, TOTAL] + unit] = total


@inlined
def prepare_crossing(store, layout, link, unit, weight, entropy):
    """What belongs to unit k of layer l + 1 seen from layer l: V_k and (W.T - V)_k, W its own weights."""
    layers, layer = layout.layers, link // 2 - 1
    size, width = layers[layer, SIZE], layers[layer, WIDTH]
    steps = width // LANES
    across, cross = layers[layer, ACROSS] + unit * width, layers[layer, CROSS] + unit * width
    itemsize = store.itemsize
    copy_in(store, across, weight + unit * size * itemsize, size)
    top, _, _ = bounds(store, across, steps)
    store[layers[layer + 1, REACH] + unit] = top
    fill(store, cross, 0, steps)
    add_scaled(store, cross, layout.links[link, PLAIN] + unit * layout.links[link, STRIDE], 1, steps)
    if not entropy:
        add_scaled(store, cross, across, -1, steps)


@step
def prepare_row(store, layout, sources, row):
    """Logits, sigmoids, signs and thresholds of one row of the path."""
    links, layers, itemsize = layout.links, layout.layers, store.itemsize
    for link in range(links.shape[0] - 1):  # the deepest layer has nothing deeper
        targets, stride = links[link, TARGETS], links[link, STRIDE]
        logits = links[link, LOGITS] + row * stride
        copy_in(store, logits, sources[link, LINK_LOGITS] + row * targets * itemsize, targets)
        sigmoids(store, links[link, STAY] + row * stride, links[link, MOVE] + row * stride, logits, stride // LANES)
    least = 1.2e-7 if itemsize == 4 else 2.3e-16  # the rounding of numbers near 1
    for layer in range(layers.shape[0]):
        size, width = layers[layer, SIZE], layers[layer, WIDTH]
        signs = layers[layer, SIGNS] + row * width
        values = vector_at(sources[layer, LAYER_VALUES] + row * size * itemsize, size, store.dtype)
        for i in range(size):
            store[signs + i] = 1 - 2 * get(values, i)
        if layer == 0:
            copy_in(store, layers[0, OWN] + row * size, sources[0, LAYER_LOGITS] + row * size * itemsize, size)
        else:
            # at least one rounding: a unit whose noise lies on its threshold must not change when its logit does not
            margins, to = layers[layer, MARGINS] + row * width, layers[layer, THRESHOLDS] + row * width
            logits = links[2 * layer - 1, LOGITS] + row * links[2 * layer - 1, STRIDE]
            thresholds(store, margins, to, signs, logits, least, width // LANES)


@inlined
def prepare_maxima(store, links):
    """The largest TOP and SPREAD of every link. Every worker does it: they write the same numbers."""
    for link in range(links.shape[0] - 1):
        units, top, spread = links[link, UNITS], 0.0, 0.0
        for unit in range(units):
            top = max(top, get(store, links[link, TOP] + unit))
            spread = max(spread, get(store, links[link, SPREAD] + unit))
        store[links[link, TOP] + units], store[links[link, SPREAD] + units] = top, spread
