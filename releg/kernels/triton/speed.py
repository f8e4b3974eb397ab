"""A prediction of the triton engine's speed: python -m releg.kernels.triton.speed > results/cuda_model.md

Instructions are counted in the machine code for sm_80. A kernel's time is its instructions over what the schedulers of
the GPU issue, as if no instruction ever waited. Nothing here is a measurement.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import torch
import triton
from torch import Tensor

from releg.kernels.batched import margin_of
from releg.kernels.triton.compile import Kernel, kernels
from releg.kernels.triton.memory import bytes_of_a_step
from releg.kernels.triton.ops import GPU_TILES
from releg.sbn import SigmoidBeliefNet

ROWS, DATA_SIZE = 100, 784
ARCHITECTURES = ((200, 200), (200, 200, 200), (200, 200, 200, 200), (256, 128, 64, 32))  # shallow first


@dataclass(frozen=True)
class Gpu:
    """Published figures."""

    name: str
    processors: int
    clock: float  # GHz
    lanes: int  # float32 lanes of each of a multiprocessor's four schedulers

    @property
    def warps_per_second(self) -> float:
        """Instructions of a whole warp, which has 32 lanes."""
        return self.processors * 4 * self.clock * 1e9 * self.lanes / 32

    @property
    def flops(self) -> float:
        """Of fused multiply-adds, each counted twice."""
        return self.processors * 4 * self.lanes * 2 * self.clock * 1e9


GPUS = (Gpu("A100 (SXM)", 108, 1.41, 16), Gpu("RTX 4060 Laptop", 24, 1.47, 32))


@dataclass(frozen=True)
class Code:
    """Instructions of a kernel per warp: outside its loops, and per round of each loop, the innermost last."""

    outside: int
    rounds: tuple[int, ...]


def machine_code(kernel: Kernel) -> list[str]:
    """Labels and instructions up to the last exit, and the jump after it; what follows is out of line, rarely run."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.compiled(80).asm["cubin"])
        file.flush()
        command = [triton.knobs.nvidia.nvdisasm.path, "-c", file.name]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
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
    """The label that an instruction jumps to; a jump for warps that part is none."""
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


@dataclass(frozen=True)
class Walked:
    """What the walk has to do: flips listed, layers that these go through, changed units on the way."""

    flips: float
    layers: float
    units: float


@torch.no_grad()
def walked(model: SigmoidBeliefNet, layer: int, rows: int) -> Walked:
    """Counted for some rows by simulation, at the model's weights, with random data."""
    generator = torch.Generator().manual_seed(0)
    x = (torch.rand(rows, DATA_SIZE, generator=generator) < 0.13).float()
    path = model.infer(x, model.draw_noise(x, generator))
    step: Tensor = torch.diag_embed(1 - 2 * path.z[layer])  # (rows, units, H)
    flips = layers = units = 0
    for deeper in range(layer + 1, len(model.layers)):
        sign = 1 - 2 * path.z[deeper]
        margin = margin_of(path.noise[deeper], path.logits[deeper], sign)
        moved = step @ model.inference[deeper].weight.T
        step = (sign[:, None] * moved > margin[:, None]) * sign[:, None]
        changes = step.abs().sum(-1)
        if deeper == layer + 1:
            step[changes < 2] = 0  # done without the walk
            flips = int((changes > 1).sum())
        layers += int(step.any(-1).sum())
        units += int(step.abs().sum())
    return Walked(flips * ROWS / rows, layers * ROWS / rows, units * ROWS / rows)


def kernel_instructions(code: dict[str, Code], layers: tuple[int, ...]) -> dict[str, float]:
    """Instructions of warps per step, by kernel."""
    tile, widths = GPU_TILES[torch.float32], [DATA_SIZE, *layers]
    torch.manual_seed(0)
    model = SigmoidBeliefNet(DATA_SIZE, layers)

    def tiles(name: str, units: int, targets: int) -> float:
        rounds, programs = triton.cdiv(targets, tile.targets), tile.grid(ROWS, units)
        return programs[0] * programs[1] * tile.warps * (code[name].outside + rounds * code[name].rounds[0])

    total = {"products": 0.0, "changes": 0.0, "walk": 0.0}
    for layer, units in enumerate(layers):
        total["products"] += tiles("products", units, widths[layer])
        if layer + 1 < len(layers):
            total["changes"] += tiles("changes", units, layers[layer + 1])
            work, walk = walked(model, layer, 10), code["walk"].rounds
            total["walk"] += work.flips * walk[0] + work.layers * walk[1] + work.units * walk[2]
    return total


def dense_flops(layers: tuple[int, ...]) -> float:
    """Of Algorithm 1 as the paper states it: every flip simulates all deeper layers and scores what depends on it."""
    widths = [DATA_SIZE, *layers]
    pairs = list(pairwise(widths))
    return sum(
        2 * ROWS * units * (sum(a * b for a, b in pairs[layer:]) + sum(a * b for a, b in pairs[layer + 1 :]))
        for layer, units in enumerate(layers)
    )


def step_flops(layers: tuple[int, ...]) -> float:
    """Of the matrix products of both nets, forward and backward."""
    return 3 * 2 * 2 * ROWS * sum(a * b for a, b in pairwise([DATA_SIZE, *layers]))


def report() -> str:
    """The page."""
    code = {kernel.name.split()[0]: count(machine_code(kernel)) for kernel in kernels(torch.float32, False)}
    lines = [*HEAD, "", "| kernel | outside its loops | per round of its loops |", "|---|---:|---|"]
    lines += [f"| {name} | {c.outside} | {', '.join(map(str, c.rounds))} |" for name, c in code.items()]
    for gpu in GPUS:
        lines += ["", f"## {gpu.name}: {gpu.processors} multiprocessors, {gpu.clock} GHz", "", *TABLE]
        for layers in ARCHITECTURES:
            times = [n / gpu.warps_per_second * 1e6 for n in kernel_instructions(code, layers).values()]
            flops = [f(layers) / gpu.flops * 1e6 for f in (step_flops, dense_flops)]
            name = "-".join(map(str, reversed(layers)))
            lines.append(f"| {name} | " + " | ".join(f"{t:.0f}" for t in (*times, sum(times), *flops)) + " |")
    return "\n".join([*lines, "", *FOOT, "", *memory()])


def memory() -> list[str]:
    """The part of the page about memory."""
    sizes = {layers: bytes_of_a_step(DATA_SIZE, layers, ROWS) / 2**20 for layers in ARCHITECTURES}
    lines = [f"| {'-'.join(map(str, reversed(layers)))} | {size:.0f} |" for layers, size in sizes.items()]
    return [*MEMORY, "", "| SBN | MiB |", "|---|---:|", *lines]


HEAD = (
    "# The triton engine on a GPU: a prediction",
    "",
    "**No GPU has run it yet. Nothing on this page is a measurement.** `python -m releg.kernels.triton.speed` computes",
    "it from the compiled kernels (sm_80, float32): instructions of a warp, counted in their machine code.",
    "A tile's loop has one round per 64 targets. The walk's three loops have one round per listed flip, per layer that",
    "it goes through, and per changed unit.",
)
TABLE = (
    "Microseconds per step with 100 images, at initial weights, where most units change:",
    "",
    "| SBN | products | changes | walk | kernels | matrix products of a step | paper's way |",
    "|---|---:|---:|---:|---:|---:|---:|",
)
FOOT = (
    "*kernels* is the sum of the three before it, as if no instruction ever waited: as a rule of thumb, expect two to",
    "four times as much. It also leaves out the small operations of torch around the kernels, which cost the host more",
    "than the GPU.",
    "*matrix products* (forward and backward of both nets) and the *paper's way* (every flip simulated; its matrix",
    "products only) are at the GPU's peak for float32.",
)

MEMORY = (
    "## Memory",
    "",
    "What a run with 100 images per step needs, counted on fake tensors in float32: parameters, gradients, the state",
    "of RMSprop, a simulation and the engine. The CUDA context of each process, some hundreds of MiB, comes on top and",
    "decides how many runs fit a GPU (`--gpus-per-run`).",
)

if __name__ == "__main__":
    print(report())
