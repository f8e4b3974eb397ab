"""How the paper writes an architecture: deepest layer first. In code, layers stand shallow first."""

from __future__ import annotations

from collections.abc import Sequence


def architecture_name(layers: Sequence[int]) -> str:
    """[256, 128, 64, 32] -> 32-64-128-256."""
    return "-".join(str(size) for size in reversed(layers))


def layers_of(name: str) -> list[int]:
    """32-64-128-256 -> [256, 128, 64, 32]; ValueError for anything else."""
    sizes = name.split("-")
    if not all(size.isascii() and size.isdecimal() and int(size) > 0 for size in sizes):
        raise ValueError(
            f"got {name!r}, expected units per layer joined by hyphens, deepest first; write for example 32-64-128-256"
        )
    return [int(size) for size in reversed(sizes)]
