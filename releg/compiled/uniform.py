"""Uniform noise as torch.rand draws it, bit for bit, several times as fast on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from releg.compiled import has_numba

STATE_BYTES = 5056  # of a CPU generator; another size would mean another kind of generator


def draw_uniform(
    rows: int, widths: Sequence[int], dtype: torch.dtype, device: torch.device, generator: torch.Generator | None
) -> list[Tensor]:
    """One (rows, width) array per width, drawn one after the other."""
    if dtype != torch.float32 or device.type != "cpu" or not _equals_torch():
        return [torch.rand(rows, width, generator=generator, dtype=dtype, device=device) for width in widths]
    flat = torch.empty(rows * sum(widths), dtype=dtype, device=device)
    _fill(flat, torch.default_generator if generator is None else generator)
    parts = flat.split([rows * width for width in widths])
    return [part.view(rows, width) for part, width in zip(parts, widths, strict=True)]


def _fill(values: Tensor, generator: torch.Generator) -> None:
    from releg.compiled import elementwise  # numba is imported here, so that everything else works without it

    state = generator.get_state()
    elementwise.run(elementwise.draw_uniform, [state.data_ptr(), values.data_ptr(), values.numel()], 1)
    generator.set_state(state)


@cache
def _equals_torch() -> bool:
    """Whether the compiled loop is available and draws the same as this version of torch; tested once per process."""
    if not has_numba():
        return False
    theirs, ours = torch.Generator().manual_seed(2016), torch.Generator().manual_seed(2016)
    if len(ours.get_state()) != STATE_BYTES:
        return False
    for count in (1, 700, 2000):
        drawn = torch.empty(count, dtype=torch.float32, device="cpu")
        _fill(drawn, ours)
        if not torch.equal(drawn, torch.rand(count, generator=theirs, dtype=torch.float32, device="cpu")):
            return False
    return torch.equal(ours.get_state(), theirs.get_state())
