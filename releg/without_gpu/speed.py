"""A prediction of the triton engine's speed: python -m releg.without_gpu.speed > results/cuda_model.md

Instructions are counted in the machine code for sm_80. A kernel's time is its instructions over what the schedulers of
the GPU issue, as if no instruction ever waited. Nothing here is a measurement.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch

from releg.architecture import architecture_name, layers_of
from releg.baselines import InputDependent, RunningAverage
from releg.estimators.common_random_numbers import CommonRandomNumbers
from releg.estimators.likelihood_ratio import LikelihoodRatio
from releg.records import names
from releg.without_gpu.compile import kernels
from releg.without_gpu.instructions import Code, count, machine_code
from releg.without_gpu.memory import bytes_of_a_step
from releg.without_gpu.work import Work, work_of_a_step

ROWS, DATA_SIZE = 100, 784
Layers = tuple[int, ...]
ARCHITECTURES: list[Layers] = [tuple(layers_of(name)) for name in names.ARCHITECTURES]  # shallow first


@dataclass(frozen=True)
class Gpu:
    """Published figures."""

    name: str
    processors: int
    clock: float  # GHz
    lanes: int  # float32 lanes of each of a multiprocessor's four schedulers
    bandwidth: float  # GB/s of its memory
    sources: tuple[str, ...]

    @property
    def warps_per_second(self) -> float:
        """Instructions of a whole warp, which has 32 lanes."""
        return self.processors * 4 * self.clock * 1e9 * self.lanes / 32

    @property
    def flops(self) -> float:
        """Of fused multiply-adds, each counted twice."""
        return self.processors * 4 * self.lanes * 2 * self.clock * 1e9


FUDZILLA = "https://fudzilla.com/news/ai/50832-nvidia-unveils-the-a100-tensor-core-gpu"
KLOCKWOOD = "https://glennklockwood.com/garden/processors/A100"
FPSBENCH = "https://fpsbench.com/compare/gpu/nvidia-geforce-rtx-3060-8-gb-vs-nvidia-geforce-rtx-4060-mobile"
DATA_CHECK = "https://data-check.eu/en/nvidia-geforce-rtx-4060-laptop-gpu/"
A100_SOURCES = (
    f"108 multiprocessors of 64 float32 lanes, at most 1.41 GHz ([NVIDIA's figures, as reported]({FUDZILLA}));",
    f"1,555 GB/s with 40 GB of memory, 2,039 GB/s with 80 GB ([from its data sheet]({KLOCKWOOD})).",
)
RTX_SOURCES = (
    f"24 multiprocessors of 128 float32 lanes, 256 GB/s ([specification]({FPSBENCH})).",
    "Its clock depends on the power that the laptop grants: at most 1.47 GHz with 35 W, 2.37 GHz with 115 W",
    f"([specification]({DATA_CHECK})). The lowest is taken here.",
)
GPUS = (
    Gpu("A100 (SXM, 40 GB)", 108, 1.41, 16, 1555, A100_SOURCES),
    Gpu("RTX 4060 Laptop", 24, 1.47, 32, 256, RTX_SOURCES),
)


def dense_flops(layers: Layers) -> float:
    """Of Algorithm 1 as the paper states it: every flip simulates all deeper layers and scores what depends on it."""
    widths = [DATA_SIZE, *layers]
    pairs = list(pairwise(widths))
    return sum(
        2 * ROWS * units * (sum(a * b for a, b in pairs[layer:]) + sum(a * b for a, b in pairs[layer + 1 :]))
        for layer, units in enumerate(layers)
    )


def step_flops(layers: Layers) -> float:
    """Of the matrix products of both nets, forward and backward."""
    return 3 * 2 * 2 * ROWS * sum(a * b for a, b in pairwise([DATA_SIZE, *layers]))


def report() -> str:
    """The page."""
    code = {kernel.name.split()[0]: count(machine_code(kernel)) for kernel in kernels(torch.float32, False)}
    work = {layers: work_of_a_step(code, DATA_SIZE, layers, ROWS) for layers in ARCHITECTURES}
    lines = [*HEAD, "", *code_table(code), "", *work_table(work)]
    for gpu in GPUS:
        lines += ["", f"## {gpu.name}", "", *gpu.sources, "", *time_table(gpu, work)]
    return "\n".join([*lines, "", *FOOT, "", *memory()])


def code_table(code: dict[str, Code]) -> list[str]:
    """Instructions of each kernel."""
    lines = [f"| {name} | {c.outside} | {', '.join(map(str, c.rounds))} |" for name, c in code.items()]
    return ["| kernel | outside its loops | per round of its loops |", "|---|---:|---|", *lines]


def work_table(work: dict[Layers, dict[str, Work]]) -> list[str]:
    """Operations and bytes of a step."""
    lines = [*WORK]
    for layers, kinds in work.items():
        total = sum(kinds.values(), Work())
        millions = [kind.instructions / 1e6 for kind in kinds.values()]
        numbers = (*millions, total.loaded / 1e6, total.arrays / 1e6)
        lines.append(f"| {architecture_name(layers)} | " + " | ".join(f"{n:.1f}" for n in numbers) + " |")
    return lines


def time_table(gpu: Gpu, work: dict[Layers, dict[str, Work]]) -> list[str]:
    """Microseconds of a step on a GPU."""
    lines = [*TIMES]
    for layers, kinds in work.items():
        times = [kind.instructions / gpu.warps_per_second * 1e6 for kind in kinds.values()]
        memory_time = sum(kinds.values(), Work()).arrays / gpu.bandwidth / 1e3
        flops = [f(layers) / gpu.flops * 1e6 for f in (step_flops, dense_flops)]
        numbers = (*times, sum(times), memory_time, *flops)
        lines.append(f"| {architecture_name(layers)} | " + " | ".join(f"{t:.0f}" for t in numbers) + " |")
    return lines


def memory() -> list[str]:
    """The part of the page about memory."""
    lines = [*MEMORY]
    for layers in ARCHITECTURES:
        estimators = (LikelihoodRatio([InputDependent(), RunningAverage()]), CommonRandomNumbers("triton"))
        sizes = [bytes_of_a_step(estimator, DATA_SIZE, layers, ROWS) / 2**20 for estimator in estimators]
        lines.append(f"| {architecture_name(layers)} | " + " | ".join(f"{size:.0f}" for size in sizes) + " |")
    return lines


HEAD = (
    "# The triton engine on a GPU: a prediction",
    "",
    "**No GPU has run it yet. Nothing on this page is a measurement.** `python -m releg.without_gpu.speed` computes",
    "it from the compiled kernels (sm_80, float32): instructions of a warp, counted in their machine code.",
    "A tile's loop has one round per 64 targets. The walk's three loops have one round per listed flip, per layer that",
    "it goes through, and per changed unit.",
)
WORK = (
    "A step with 100 images, at initial weights, where most units change: millions of warp instructions of each",
    "kernel, megabytes that all programs together ask for (caches answer most of it), and megabytes of their arrays,",
    "each counted once.",
    "",
    "| SBN | products | changes | walk | MB asked for | MB of arrays |",
    "|---|---:|---:|---:|---:|---:|",
)
TIMES = (
    "Microseconds per step:",
    "",
    "| SBN | products | changes | walk | kernels | their arrays | matrix products of a step | paper's way |",
    "|---|---:|---:|---:|---:|---:|---:|---:|",
)
FOOT = (
    "*kernels* is the sum of the three before it, as if no instruction ever waited: as a rule of thumb, expect two to",
    "four times as much. It also leaves out the small operations of torch around the kernels, which cost the host more",
    "than the GPU. *their arrays* is the time to move these once at the bandwidth of the memory; they fit the",
    "second-level cache of both GPUs.",
    "*matrix products* (forward and backward of both nets) and the *paper's way* (every flip simulated; its matrix",
    "products only) are at the GPU's peak for float32.",
)
MEMORY = (
    "## Memory",
    "",
    "MiB that a training step with 100 images needs at most, counted on fake tensors in float32: parameters,",
    "gradients, the state of RMSprop, and all that estimate, backward pass and update make. What CUDA needs for each",
    "process comes on top, and is more: `bash reproduce.sh --jobs N` counts both.",
    "",
    "| SBN | LR | CRN, triton |",
    "|---|---:|---:|",
)

if __name__ == "__main__":
    print(report())
