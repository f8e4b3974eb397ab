"""Compiles the kernels for GPUs that need not be there: python -m tests.without_gpu.compiled

It prints one JSON object: of each kernel its registers, shared and stack memory (bytes; spilled registers are on the
stack), and the size of its cubin; two faults. TRITON_INTERPRET must not be set, so test_compile.py runs this in its own
process.
"""

import json
import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from releg.kernels.triton.changes import change_kernel
from releg.kernels.triton.ops import GPU_TILES, walk_warps
from releg.kernels.triton.products import log_product_kernel
from releg.kernels.triton.walk import walk_kernel
from tests.releg.kernels.interpreted import faulty_module

TYPES = {torch.float32: "fp32", torch.float64: "fp64"}
POINTERS_TO_INTEGERS = ("fitting", "listed", "count", "shape")
INTEGERS = ("rows", "units", "targets", "row_stride", "total_units")


@dataclass(frozen=True)
class Kernel:
    """A kernel and the constants it is compiled with."""

    name: str
    function: Any
    dtype: torch.dtype
    warps: int
    constants: dict[str, int | bool] = field(default_factory=dict)

    def compiled(self, architecture: int) -> Any:
        """The output of triton's compiler for sm_80, sm_90 and so on: `asm` has ptx and cubin, `metadata` the rest."""
        names = self.function.arg_names
        signature = {name: self._type_of(name) for name in names}
        aligned = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(names) if signature[name].startswith("*")}
        constants = {(names.index(name),): value for name, value in self.constants.items()}
        source = ASTSource(self.function, signature, constants, aligned)
        options = {"num_warps": self.warps, "enable_fp_fusion": True}
        return triton.compile(source, target=GPUTarget("cuda", architecture, 32), options=options)

    def _type_of(self, argument: str) -> str:
        if argument in self.constants:
            return "constexpr"
        if argument in INTEGERS:
            return "i32"
        return "*i32" if argument in POINTERS_TO_INTEGERS else f"*{TYPES[self.dtype]}"


def kernels(dtype: torch.dtype, block: int = 256) -> Iterator[Kernel]:
    """Log products, changes and walk, the last for layers of at most `block` units."""
    tile = GPU_TILES[dtype]
    sizes = {"block_rows": tile.rows, "block_units": tile.units, "block_targets": tile.targets}
    kind = TYPES[dtype]
    yield Kernel(f"products {kind}", log_product_kernel, dtype, tile.warps, {**sizes})
    yield Kernel(f"changes {kind}", change_kernel, dtype, tile.warps, {**sizes})
    walk = {"block_pairs": 1, "block": block}
    yield Kernel(f"walk {block} {kind}", walk_kernel, dtype, walk_warps(block, dtype.itemsize), walk)


def ask(tool: str, option: str, cubin: bytes) -> str:
    """The output of one of NVIDIA's tools, which come with triton, for some machine code."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        return subprocess.run([tool, option, file.name], capture_output=True, text=True, check=True).stdout


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
