"""Counts the instructions of a compiled kernel, outside and inside of its loops."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import triton

from releg.without_gpu.compile import Kernel, ask


@dataclass(frozen=True)
class Code:
    """Instructions of a kernel per warp: outside its loops, and per round of each loop, the innermost last."""

    outside: int
    rounds: tuple[int, ...]


def machine_code(kernel: Kernel) -> list[str]:
    """Labels and instructions up to the last exit, and the jump after it; what follows is out of line, rarely run."""
    said = ask(triton.knobs.nvidia.nvdisasm.path, "-c", kernel.compiled(80).asm["cubin"])
    found = re.findall(r"^(\.L_x_\d+:|\s+/\*[0-9a-f]{4,}\*/\s+.*;)", said, flags=re.MULTILINE)
    lines = [re.sub(r"/\*.*?\*/", "", line).strip() for line in found]
    return lines[: max(i for i, line in enumerate(lines) if "EXIT" in line) + 2]


def count(lines: list[str]) -> Code:
    """Instructions outside and inside of nested loops; of a loop's branches, the shortest way through."""
    labels = {line[:-1]: i for i, line in enumerate(lines) if line.endswith(":")}
    jumps = {i: labels[target] for i, line in enumerate(lines) for target in jump_of(line) if target in labels}
    loops = sorted((start, end) for end, start in jumps.items() if start < end)
    assert all(inner[1] < outer[1] for outer, inner in pairwise(loops)), "loops stand inside each other"
    rounds = []
    for place, (start, end) in enumerate(loops):
        inner = loops[place + 1] if place + 1 < len(loops) else None
        rounds.append(shortest(lines, jumps, start, end) if inner is None else _between(lines, (start, end), inner))
    return Code(_between(lines, (0, len(lines) - 1), loops[0]), tuple(rounds))


def jump_of(line: str) -> list[str]:
    """The label that an instruction jumps to; a jump for diverging warps does not count."""
    return [] if "BRA.DIV" in line else re.findall(r"BRA `\((\.L_x_\d+)\)", line)


def _between(lines: list[str], outer: tuple[int, int], inner: tuple[int, int]) -> int:
    """Instructions of a range without those of a range inside it."""
    return _instructions(lines[outer[0] : inner[0]]) + _instructions(lines[inner[1] + 1 : outer[1] + 1])


def _instructions(lines: list[str]) -> int:
    return sum(not line.endswith(":") for line in lines)


def shortest(lines: list[str], jumps: dict[int, int], start: int, end: int) -> int:
    """Fewest instructions from a loop's first to its last."""

    @cache
    def from_here(i: int) -> int:
        if i == end:
            return 1
        own = not lines[i].endswith(":")
        ways = [jumps[i]] if i in jumps and jumps[i] > i else []
        if i not in jumps or lines[i].startswith("@"):
            ways.append(i + 1)
        return own + min((from_here(way) for way in ways if way <= end), default=10**9)

    total = 0  # short stretches first, so that the recursion stays shallow
    for i in range(end, start - 1, -1):
        total = from_here(i)
    return total
