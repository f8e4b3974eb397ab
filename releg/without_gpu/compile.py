"""Compiles the kernels as the engine would launch them; no GPU is needed."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from releg.kernels.triton.changes import change_kernel
from releg.kernels.triton.ops import GPU_TILES, walk_warps
from releg.kernels.triton.products import log_product_kernel
from releg.kernels.triton.walk import walk_kernel

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
