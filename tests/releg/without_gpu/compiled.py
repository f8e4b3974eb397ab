"""Compiles the kernels for GPUs that need not be there: python -m tests.releg.without_gpu.compiled

It prints one JSON object: of each kernel its registers, shared and stack memory (bytes; spilled registers are on the
stack), and the size of its cubin; two faults. TRITON_INTERPRET must not be set, so test_compile.py runs this in its own
process.
"""

import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
import triton

from releg.kernels.triton.changes import change_kernel
from releg.kernels.triton.walk import walk_kernel
from releg.without_gpu.compile import Kernel, ask, kernels
from tests.releg.kernels.interpreted import faulty_module


def wanted(architecture: int) -> Iterator[Kernel]:
    """All in float32 for every architecture; the rest once, as it takes a while."""
    yield from kernels(torch.float32)
    if architecture == 80:
        yield from kernels(torch.float64)
        yield Kernel(
            "changes of layers of 1 unit", change_kernel, torch.float32, 2,
            {"block_rows": 4, "block_units": 4, "block_targets": 64, "units": 1, "targets": 1},
        )  # fmt: skip
    if architecture == 90:
        yield from kernels(torch.float32, block=1024)


def measured(kernel: Kernel, architecture: int) -> dict[str, int]:
    """What the kernel needs, from its compiled code."""
    built = kernel.compiled(architecture)
    assert f".target sm_{architecture}" in built.asm["ptx"]
    said = ask(triton.knobs.nvidia.cuobjdump.path, "-res-usage", built.asm["cubin"])
    usage = {name: int(number) for name, number in re.findall(r"(REG|STACK|LOCAL):(\d+)", said)}
    return {
        "registers": usage["REG"], "stack": usage["STACK"], "local": usage["LOCAL"],
        "shared": built.metadata.shared, "cubin": len(built.asm["cubin"]),
    }  # fmt: skip


def spilling() -> dict[str, int]:
    """What is measured of a kernel that needs more registers than there are."""
    constants: dict[str, int | bool] = {"block_pairs": 1, "block": 1024}
    return measured(Kernel("a layer of 1024 units in one warp", walk_kernel, torch.float32, 1, constants), 80)


def not_compiling() -> str:
    """What the compiler says to a kernel that the interpreter accepts: a variable that changes its type in a loop."""
    with tempfile.TemporaryDirectory() as folder:
        faulty = faulty_module(Path(folder), "walk", "next_layer += 3", "next_layer = next_layer + 3.0").walk_kernel
        constants: dict[str, int | bool] = {"block_pairs": 1, "block": 64}
        try:
            Kernel("walk", faulty, torch.float32, 1, constants).compiled(80)
        except triton.CompilationError as error:
            return str(error)
    return "compiled"


def main() -> None:
    needs = {f"sm_{a} {kernel.name}": measured(kernel, a) for a in (80, 90, 100) for kernel in wanted(a)}
    faults = {"spilling": spilling(), "not compiling": not_compiling()}
    print(json.dumps({"needs": needs, **faults}))


if __name__ == "__main__":
    main()
