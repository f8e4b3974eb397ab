"""Tables of the CPU kernel: those of the weights, once per call, and those of the rows that a worker has in hand."""

from __future__ import annotations

import numpy as np

from releg.kernels.cpu.layout import BLOCK, GROUP, LAYER, LINK, TILE
from releg.kernels.cpu.loops import exponential, larger, load_four, logarithm, magnitude, sum_rows
from releg.kernels.cpu.vector import (
    LANES,
    at,
    bits,
    by_type,
    copy,
    exponent,
    fma,
    inlined,
    largest,
    like,
    load,
    mantissa,
    record_at,
    select,
    step,
    store,
    store_columns,
    take,
    widen,
)

F64, I32, I64, U32, U64 = np.float64, np.int32, np.int64, np.uint32, np.uint64
STEEP = 6.0  # |w| beyond which 1 - |c T| loses too many digits: such weights are treated one by one
LIMIT = 80.0  # sum of |d| in one lane of a product: exp(80) fits float32


@step
def prepare_weights(number, call, scratch):
    """All tables of the weights, for as many tiles of units as this worker gets."""
    counters = at(np.int64, call.counters, 0)
    index, first = 0, 0  # `first` is the number of the link's first tile
    tile = take(counters, 0)
    while index < 2 * call.depth - 1:
        link = record_link(call, index)
        tiles = (link.units + TILE - 1) // TILE
        if tile >= first + tiles:
            first += tiles
            index += 1
            continue
        prepare_tile(number, call, scratch, index, (tile - first) * TILE)
        tile = take(counters, 0)


@inlined
def record_link(call, index):
    """The record of a link."""
    return record_at(LINK, call.links, index)


@step
def prepare_tile(number, call, scratch, index, begin):
    """The tables of units begin to begin + TILE - 1."""
    link, ratios = record_link(call, index), at(number, scratch.ratios, 0)
    end = min(begin + TILE, link.units)
    copy_tile(number, link, begin, end)
    measure_tile(number, link, begin)
    rows = index >= 2
    if rows:
        tile, plain = at(number, link.tiles, begin * link.padded), at(number, link.plain, begin * link.stride)
        copy_rows(tile, plain, link.padded, link.stride)
    if index % 2 == 0 and index > 0:
        for unit in range(begin, end):
            prepare_crossing(number, call, index, unit)
    fill_slopes(number, link, begin, ratios)
    list_steep(number, link, begin, end, ratios)
    if rows:
        copy_rows(ratios, at(number, link.ratio, 2 * begin * link.ratio_stride), link.padded, 2 * link.ratio_stride)
        for unit in range(begin, end):
            invert(at(number, link.ratio, 2 * unit * link.ratio_stride), link.ratio_stride, link.padded)


@inlined
def copy_rows(tile, rows, length, stride):
    """The numbers of a tile into one row per unit, LANES units and targets at a time."""
    for part in range(0, TILE, LANES):
        for j in range(0, length, LANES):
            a, b, c, d = load_four(tile, j * TILE + part, TILE)
            e, f, g, h = load_four(tile, (j + LANES // 2) * TILE + part, TILE)
            store_columns(rows, part * stride + j, stride, a, b, c, d, e, f, g, h)


@inlined
def invert(ratio, stride, length):
    """The inverse of a row of ratios into the next row."""
    for j in range(0, length, LANES):
        store(ratio, stride + j, like(load(ratio, j), 1.0) / load(ratio, j))


@inlined
def copy_tile(number, link, begin, end):
    """The weights of a tile; what is behind its last unit and target stays 0."""
    weights, to = at(number, link.weights, begin), at(number, link.tiles, begin * link.padded)
    for j in range(link.targets):
        if end - begin == TILE:
            store(to, j * TILE, load(weights, j * link.units))
            store(to, j * TILE + LANES, load(weights, j * link.units + LANES))
        else:
            for i in range(end - begin):
                to[j * TILE + i] = weights[j * link.units + i]


@inlined
def measure_tile(number, link, begin):
    """Largest |w| and sum of |w| of a tile's units."""
    weights = at(number, link.tiles, begin * link.padded)
    for part in range(0, TILE, LANES):
        top = spread_out = like(load(weights, 0), 0.0)
        for j in range(link.padded):
            size = magnitude(load(weights, j * TILE + part))
            top, spread_out = larger(size, top), spread_out + size
        store(at(number, link.top, begin), part, top)
        store(at(number, link.spread, begin), part, spread_out)


@inlined
def prepare_crossing(number, call, index, unit):
    """What belongs to unit k of layer l + 1 seen from layer l: V_k and (W.T - V)_k, W its own weights; reach of k."""
    layer, link = record_at(LAYER, call.layers, index // 2 - 1), record_link(call, index)
    across, cross = at(number, layer.across, unit * layer.width), at(number, layer.cross, unit * layer.width)
    copy(across, at(number, record_link(call, index - 1).weights, unit * layer.size), layer.size)
    plain = at(number, link.plain, unit * link.stride)
    top = like(load(across, 0), 0.0)
    for i in range(0, layer.width, LANES):
        v = load(across, i)
        top = larger(magnitude(v), top)
        store(cross, i, load(plain, i) - v)
    at(number, record_at(LAYER, call.layers, index // 2).reach, 0)[unit] = largest(top)


@inlined
def list_steep(number, link, begin, end, ratios):
    """The targets of a tile's steep weights, and exp(w) of these."""
    top, counts = at(number, link.top, 0), at(I32, link.steep_count, 0)
    for unit in range(begin, end):
        steep = at(I32, link.steep, unit * link.padded)
        steep_ratio = at(number, link.steep_ratio, unit * link.padded)
        count = 0
        if top[unit] > STEEP:
            weights = at(number, link.weights, unit)
            for j in range(link.targets):
                if abs(weights[j * link.units]) > STEEP:
                    steep[count], steep_ratio[count] = j, ratios[j * TILE + unit - begin]
                    count += 1
        counts[unit] = count


@inlined
def fill_slopes(number, link, begin, ratios):
    """T = tanh(w / 2), the sums of w / 2 and of log cosh(w / 2), where products over the targets are cut; exp(w).

    A steep weight gets T = 0: its factor is 1.
    """
    weights, table = at(number, link.tiles, begin * link.padded), at(number, link.slopes, begin * link.padded)
    cuts = at(I32, link.cuts, begin // TILE * (link.padded // GROUP + 1))
    half, level = at(F64, link.half, begin), at(F64, link.level, begin)
    chunks, bound = 0, 0.0
    zero, one, steep = like(load(table, 0), 0.0), like(load(table, 0), 1.0), like(load(table, 0), STEEP)
    sum0 = sum1 = power0 = power1 = widen(zero)
    product0 = product1 = one
    for begin_group in range(0, link.padded, GROUP):
        size0 = size1 = total0 = total1 = zero
        for j in range(begin_group, begin_group + GROUP):
            w0, w1 = load(weights, j * TILE), load(weights, j * TILE + LANES)
            up0, up1 = exponential(w0), exponential(w1)
            store(ratios, j * TILE, up0)
            store(ratios, j * TILE + LANES, up1)
            t0, t1 = (up0 - one) / (up0 + one), (up1 - one) / (up1 + one)
            steep0, steep1 = magnitude(w0) > steep, magnitude(w1) > steep
            t0, t1, w0, w1 = (
                select(steep0, zero, t0),
                select(steep1, zero, t1),
                select(steep0, zero, w0),
                select(steep1, zero, w1),
            )
            total0, total1 = total0 + w0, total1 + w1
            size0, size1 = size0 + magnitude(w0), size1 + magnitude(w1)
            product0, product1 = product0 * (one - t0 * t0), product1 * (one - t1 * t1)
            store(table, j * TILE, t0)
            store(table, j * TILE + LANES, t1)
        sum0, sum1 = sum0 + widen(total0), sum1 + widen(total1)
        power0, power1 = power0 + widen(exponent(product0)), power1 + widen(exponent(product1))
        product0, product1 = mantissa(product0), mantissa(product1)
        size = np.float64(largest(larger(size0, size1)))
        if bound + size > LIMIT:
            chunks += 1
            cuts[chunks] = begin_group
            bound = 0.0
        bound += size
    chunks += 1
    cuts[chunks] = link.padded
    cuts[0] = chunks
    store(half, 0, like(sum0, 0.5) * sum0)
    store(half, LANES, like(sum1, 0.5) * sum1)
    # 1 / cosh(w / 2)**2 = 1 - T**2
    log2 = like(sum0, np.log(2.0))
    store(level, 0, like(sum0, -0.5) * fma(power0, log2, logarithm(widen(product0))))
    store(level, LANES, like(sum1, -0.5) * fma(power1, log2, logarithm(widen(product1))))


@inlined
def prepare_maxima(number, call):
    """The largest top and spread of every link. Every worker does it: they write the same numbers."""
    for index in range(2 * call.depth - 1):
        link = record_link(call, index)
        tops, spreads = at(number, link.top, 0), at(number, link.spread, 0)
        top = spread_out = 0.0
        for unit in range(link.units):
            top, spread_out = max(top, tops[unit]), max(spread_out, spreads[unit])
        link.largest_top, link.largest_spread = top, spread_out


@step
def prepare_rows(number, call, slot, first, last):
    """Logits, sigmoids, signs, margins and linear terms of some rows of the path, into slots from that one on."""
    for row in range(first, last):
        for index in range(2 * call.depth - 1):  # the deepest layer has nothing deeper
            prepare_targets(number, record_link(call, index), slot + row - first, row)
        for index in range(call.depth):
            prepare_units(number, call, index, slot + row - first, row)
    for index in range(call.depth):
        layer = record_at(LAYER, call.layers, index)
        add_matches(number, record_link(call, 2 * index), layer, slot, last - first, 1.0)
        if index + 1 < call.depth:
            add_matches(number, record_link(call, 2 * index + 1), layer, slot, last - first, -1.0)
        linear, change = at(F64, layer.linear, slot * layer.width), at(F64, layer.change, slot * layer.width)
        copy(change, linear, (last - first) * layer.width)


@inlined
def prepare_targets(number, link, slot, row):
    """r, sigmoid(-r), sigmoid(r) and tanh(r / 2), both sigmoids exact when saturated; which targets are on."""
    at_slot = slot * link.stride
    logits = at(number, link.logits, at_slot)
    stay, move = at(number, link.stay, at_slot), at(number, link.move, at_slot)
    lean = at(number, link.lean, at_slot)
    copy(logits, at(number, link.logits_of, row * link.targets), link.targets)
    for j in range(0, link.stride, LANES):
        r = load(logits, j)
        zero, one = like(r, 0.0), like(r, 1.0)
        decay = exponential(zero - magnitude(r))
        likely = one / (one + decay)
        unlikely = decay * likely
        positive = r > zero
        down, up = select(positive, unlikely, likely), select(positive, likely, unlikely)
        store(stay, j, down)
        store(move, j, up)
        store(lean, j, up - down)
    for j in range(link.targets, link.stride):  # whose factors are 1: of sets, whole blocks are multiplied
        stay[j], move[j] = 1, 0
    values, chosen, count = at(number, link.values_of, row * link.targets), at(I32, link.chosen, at_slot), 0
    for j in range(link.targets):
        chosen[count] = j
        count += values[j] != 0
    at(I64, link.chosen_count, 0)[slot] = count


@inlined
def prepare_units(number, call, index, slot, row):
    """Signs and margins of a layer's units; s * r, r the logits of p(z[l] | z[l+1]), into linear."""
    layer = record_at(LAYER, call.layers, index)
    at_slot = slot * layer.width
    signs, values = at(number, layer.signs, at_slot), at(number, layer.values_of, row * layer.size)
    linear, following = at(F64, layer.linear, at_slot), at(number, layer.next_of, row * layer.size)
    for i in range(layer.size):
        signs[i] = 1 - 2 * values[i]
        linear[i] = signs[i] * following[i]
    if index == 0:
        return
    margins, link = at(number, layer.margins, at_slot), record_link(call, 2 * index - 1)
    logits, turn = at(number, link.logits, at_slot), at(number, link.turn, at_slot)
    turn_ratio, downward = at(number, link.turn_ratio, at_slot), at(U32, link.downward, at_slot // BLOCK)
    copy(margins, at(number, layer.noise_of, row * layer.size), layer.size)
    for i in range(0, layer.width, LANES):
        sign, noise = load(signs, i), load(margins, i)
        one, zero, infinite = like(sign, 1.0), like(sign, 0.0), like(sign, np.inf)
        distance = sign * (logarithm(noise / (one - noise)) - load(logits, i))
        # at least one rounding error: a unit with its noise at the threshold must not change if its logit does not
        margin = larger(distance, rounding(sign))
        # noise of 0 or 1 is never crossed; nor are the zeros behind the last unit
        margin = select(noise * (one - noise) > zero, margin, infinite)
        bend = select(sign < zero, zero - margin, margin)
        store(margins, i, margin)
        store(turn, i, bend)
        store(turn_ratio, i, exponential(bend))
        if i % BLOCK == 0:
            downward[i // BLOCK] = 0
        downward[i // BLOCK] |= U32(bits(sign < zero) << U64(i % BLOCK))


@inlined
def rounding(vector):
    """The distance of numbers near 1."""
    return by_type(vector, 1.2e-7, 2.3e-16)


@step
def add_matches(number, link, layer, slot, count, scale):
    """Add scale * s * (values of the targets @ weights) to linear: all units of `count` slots, a tile at a time.

    Values are zeros and ones, so rows of the weights are added up.
    """
    for begin in range(0, link.units, TILE):
        table = at(number, link.tiles, begin * link.padded)
        for row in range(slot, slot + count):
            chosen, chosen_count = at(I32, link.chosen, row * link.stride), at(I64, link.chosen_count, row)[0]
            signs, linear = at(number, layer.signs, row * layer.width), at(F64, layer.linear, row * layer.width)
            v0, v1 = sum_rows(table, chosen, chosen_count)
            add_scaled(linear, begin, load(signs, begin) * v0, scale)
            add_scaled(linear, begin + LANES, load(signs, begin + LANES) * v1, scale)


@inlined
def add_scaled(to, i, vector, scale):
    """Add scale * vector to the float64 numbers from to[i] on."""
    store(to, i, fma(like(load(to, i), scale), widen(vector), load(to, i)))
