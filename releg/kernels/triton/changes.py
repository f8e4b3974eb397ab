"""What a flip does to the next deeper layer: which of its units change.

Unit k changes, by t_k = 1 - 2 z_k, iff t_k s V_ik exceeds its margin. Flips that change no unit are done. Flips that
change one unit k are done as well: what follows is what follows from flipping k itself, which is known, since the
deeper layer comes first. The others are listed for walk.py. The (rows, units, width) comparisons never
reach memory, only the list does: one number per listed flip.
"""

import triton
import triton.language as tl


@triton.jit
def change_kernel(
    weight, sign, z, margin, single, cross, out, listed, count, rows, units, targets, row_stride,
    block_rows: tl.constexpr, block_units: tl.constexpr, block_targets: tl.constexpr,
):  # fmt: skip
    """One tile of rows x units of `deeper_changes`; rows of z and margin are row_stride numbers apart."""
    row = (tl.program_id(0) * block_rows + tl.arange(0, block_rows)).to(tl.int64)
    unit = tl.program_id(1) * block_units + tl.arange(0, block_units)
    tile = row[:, None] * units + unit[None, :]
    inside = (row < rows)[:, None] & (unit < units)[None, :]
    s = tl.load(sign + tile, mask=inside, other=0.0)
    followed = tl.zeros((block_rows, block_units, block_targets), dtype=out.dtype.element_ty)
    changes = tl.zeros((block_rows, block_units, block_targets), dtype=tl.int32)
    for start in tl.range(0, targets, block_targets):
        target = start + tl.arange(0, block_targets)
        at_row = row[:, None] * targets + target[None, :]
        at_layer = row[:, None] * row_stride + target[None, :]
        at_unit = unit[:, None] * targets + target[None, :]
        in_row = (row < rows)[:, None] & (target < targets)[None, :]
        in_unit = (unit < units)[:, None] & (target < targets)[None, :]
        w = tl.load(weight + at_unit, mask=in_unit, other=0.0)
        t = 1 - 2 * tl.load(z + at_layer, mask=in_row, other=0.0)
        far = tl.load(margin + at_layer, mask=in_row, other=float("inf"))  # outside, nothing changes
        known = tl.load(single + at_row, mask=in_row, other=0.0)
        c = tl.load(cross + at_unit, mask=in_unit, other=0.0)
        changed = t[:, None, :] * (s[:, :, None] * w[None, :, :]) > far[:, None, :]
        changes += changed.to(tl.int32)
        after = known[:, None, :] + t[:, None, :] * (s[:, :, None] * c[None, :, :])
        followed += tl.where(changed, after, 0.0)
    number = tl.sum(changes, axis=2)
    total = tl.where(number == 1, tl.sum(followed, axis=2), 0.0)
    tl.store(out + tile, total, mask=inside)
    several = tl.reshape((number > 1) & inside, (block_rows * block_units,)).to(tl.int32)
    first = tl.atomic_add(count, tl.sum(several))
    place = first + tl.cumsum(several) - several
    tl.store(listed + place, tl.reshape(tile, (block_rows * block_units,)).to(tl.int32), mask=several > 0)
