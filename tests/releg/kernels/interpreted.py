"""What the interpreter of triton says of the kernels: TRITON_INTERPRET=1 python -m tests.releg.kernels.interpreted

It prints one JSON object: for each check its error and the largest one allowed; for each planted fault the same, of a
check that has to notice it. The variable has to be set before the kernels are decorated, so test_triton.py runs this
file in a process of its own.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid
from torch.utils._python_dispatch import TorchDispatchMode

from releg.kernels import batched, cpu
from releg.kernels import triton as triton_engine
from releg.kernels.dense import flip_differences
from releg.kernels.triton import ops
from releg.sbn import SigmoidBeliefNet, Trajectory
from releg.weights import load
from tests.environment import ROOT
from tests.releg.helpers import error, random_model, random_x, simulate

PUBLISHED = ROOT / "results/weights/200-200/crn.safetensors"
Check = Callable[[], tuple[float, float]]  # error, and the largest one allowed


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    checks: dict[str, Check] = {**CHECKS, **{name: partial(check_with, *fault) for name, fault in FAULTS.items()}}
    print(json.dumps({name: checks[name]() for name in names or checks}))


def against_dense(layers: list[int], scale: float, rows: int = 4, data_size: int = 9) -> tuple[float, float]:
    model = random_model(data_size, layers, scale, seed=len(layers))
    path, r = simulate(model, rows, 1)
    return error(triton_engine.flip_differences(model, path, r), flip_differences(model, path, r)), 1e-9


def random_shapes() -> tuple[float, float]:
    draw, errors = Random(0), []
    for _ in range(8):
        layers = [draw.randint(1, 20) for _ in range(draw.randint(1, 4))]
        scale, rows, data_size = draw.choice([0.1, 0.5, 1.0, 3.0]), draw.randint(1, 6), draw.randint(1, 40)
        errors.append(against_dense(layers, scale, rows, data_size)[0])
    return max(errors), 1e-9


def tile_of_the_gpu() -> tuple[float, float]:
    """The interpreter has larger tiles, since it pays per program. These are the ones that a GPU works with."""
    kept, ops.TILES, ops.PAIRS = (ops.TILES, ops.PAIRS), ops.GPU_TILES, 1
    try:
        return max(against_dense([6, 5], 1.0, 3, data_size=70), against_dense([5, 3, 4], 1.0, 2))
    finally:
        ops.TILES, ops.PAIRS = kept


def paper_sized(scale: float) -> tuple[float, float]:
    """SBN(200-200) in float32 against the CPU engine, at initial weights times the scale; the seed avoids ties."""
    torch.manual_seed(0)
    model = SigmoidBeliefNet(784, [200, 200])
    with torch.no_grad():
        for linear in model.linears():
            linear.weight *= scale
    return against_cpu_engine(model, *simulate(model, 4, 3))


def trained() -> tuple[float, float]:
    """The same at published weights, those of long training, for images that the model draws itself."""
    model = load(PUBLISHED)
    generator = torch.Generator().manual_seed(0)
    x, found = model.generate(4, generator=generator), None
    while (
        found is None
    ):  # in float32, a logit that passes its threshold by a rounding error may do so in one engine only
        path = model.infer(x, model.draw_noise(x, generator))
        found = path if nearest_threshold(model, path) > 1e-5 else None
    return against_cpu_engine(model, found, [r.detach() for r in model.generative_logits(found.z)])


@torch.no_grad()
def nearest_threshold(model: SigmoidBeliefNet, path: Trajectory) -> float:
    """How close any flip of the first of two layers brings a unit of the second one to its threshold."""
    _, logits = path.logits
    moved = (1 - 2 * path.z[0])[..., None] * model.inference[1].weight.T  # (N, H, K)
    return float((torch.logit(path.noise[1])[:, None] - logits[:, None] - moved).abs().min())


def against_cpu_engine(model: SigmoidBeliefNet, path: Trajectory, r: list[Tensor]) -> tuple[float, float]:
    return error(triton_engine.flip_differences(model, path, r), cpu.flip_differences(model, path, r)), 1e-4


def frozen_noise() -> tuple[float, float]:
    """Noise of 0 and 1, whose logits are infinite: no unit can change."""
    model = random_model(9, [7, 6, 5], 3.0, 1)
    path, r = simulate(model, 4, 1)
    frozen = replace(path, noise=[1 - z for z in path.z])
    return error(triton_engine.flip_differences(model, frozen, r), batched.flip_differences(model, frozen, r)), 1e-9


def noise_on_the_threshold() -> tuple[float, float]:
    model, x = random_model(5, [4, 3, 2], 0.0, 0), random_x(3, 5, 0)
    path = model.infer(x, [torch.full((3, size), 0.5, dtype=torch.float64) for size in model.layers])
    return max(
        float(d.abs().max()) for d in triton_engine.flip_differences(model, path, model.generative_logits(path.z))
    ), 1e-12


def log_products(dtype: torch.dtype, scale: float, equal: bool = False) -> tuple[float, float]:
    """Against float64, relative to each number by itself where that exceeds 1; all weights may be equal."""
    generator = torch.Generator().manual_seed(1)
    logits = (scale * torch.randn(3, 784, generator=generator)).to(dtype)
    weight = (scale * torch.randn(20, 784, generator=generator)).to(dtype)
    if equal:
        weight = torch.full_like(weight, scale)
    sign = 1 - 2 * torch.randint(2, (3, 20), generator=generator).to(dtype)
    before = -logits[:, None].double()
    expected = (logsigmoid(before) - logsigmoid(before - sign.double()[..., None] * weight.double())).sum(-1)
    answer = ops.log_products(logits, weight, sign)
    relative = (answer - expected).abs() / expected.abs().clamp(min=1)
    return float(relative.max()), 1e-5 if dtype == torch.float32 else 1e-12


def strided_tensors() -> tuple[float, float]:
    """Kernels compute addresses themselves: what they get must be dense, however the caller's tensors lie in memory."""
    model = random_model(9, [6, 5, 4], 1.0, 1)
    path, r = simulate(model, 4, 1)
    with torch.no_grad():
        for linear in model.linears():
            linear.weight.data = _transposed(linear.weight.data)
    z, noise = [[_transposed(a) for a in layers] for layers in (path.z, path.noise)]
    strided = replace(path, z=z, noise=noise, logits=[_transposed(a.detach()) for a in path.logits])
    answer = triton_engine.flip_differences(model, strided, [_transposed(a) for a in r])
    return error(answer, flip_differences(model, path, r)), 1e-9


def _transposed(array: Tensor) -> Tensor:
    return array.T.contiguous().T


def no_rows() -> tuple[float, float]:
    model = random_model(5, [4, 3], 1.0)
    path, r = simulate(model, 0, 1)
    return float(
        any(
            d.shape != (0, size) for d, size in zip(triton_engine.flip_differences(model, path, r), [4, 3], strict=True)
        )
    ), 0.0


class Calls(TorchDispatchMode):
    """Keeps the first call of each operator of releg."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[Any, tuple[Any, ...]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        if func.namespace == "releg" and func not in self.found:
            self.found[func] = tuple(a.clone() if isinstance(a, Tensor) else a for a in args)
        return func(*args, **(kwargs or {}))


def opcheck() -> tuple[float, float]:
    """Schema, autograd registration, fake kernel, tracing: how many of these torch finds wrong in an operator."""
    model = random_model(9, [5, 4], 1.0)
    path, r = simulate(model, 4, 1)
    with Calls() as calls:
        triton_engine.flip_differences(model, path, r)
    assert len(calls.found) == 2, calls.found
    results = {op: torch.library.opcheck(op, args, raise_exception=False) for op, args in calls.found.items()}
    wrong = [
        f"{op} {name}: {said}" for op, tests in results.items() for name, said in tests.items() if said != "SUCCESS"
    ]
    print(*wrong, sep="\n", file=sys.stderr)
    return float(len(wrong)), 0.0


CHECKS: dict[str, Check] = {
    "depth 1": partial(against_dense, [5], 1.0),
    "depth 2": partial(against_dense, [7, 3], 1.0),
    "depth 3": partial(against_dense, [4, 6, 5], 0.3),
    "depth 4": partial(against_dense, [6, 5, 7, 4], 0.5),
    "weights of scale 10": partial(against_dense, [8, 7, 6], 10.0),
    "weights of scale 50": partial(against_dense, [8, 7, 6], 50.0),
    "weights of scale 300": partial(against_dense, [8, 7, 6], 300.0),  # exp leaves the range of float64
    "weights of scale 0": partial(against_dense, [4, 3], 0.0),
    "layers of 1 unit": partial(against_dense, [1, 1, 1], 1.0),
    "a layer of 1 between others": partial(against_dense, [6, 1, 5], 2.0),
    "layers of 257 units": partial(against_dense, [257, 3], 0.1, 2),
    "layers of 257 units below": partial(against_dense, [3, 257, 2], 0.1, 2),
    "one row": partial(against_dense, [9, 8, 7], 1.0, rows=1),
    "random shapes": random_shapes,
    "many sets": partial(against_dense, [40, 30, 50], 0.3),
    "SBN(200-200), float32": partial(paper_sized, 1.0),
    "SBN(200-200), float32, large weights": partial(paper_sized, 8.0),
    **({"SBN(200-200), published weights": trained} if PUBLISHED.is_file() else {}),
    "no rows": no_rows,
    "strided tensors": strided_tensors,
    "tile of the gpu": tile_of_the_gpu,
    "frozen noise": frozen_noise,
    "noise on the threshold": noise_on_the_threshold,
    "log products, float32, scale 0.1": partial(log_products, torch.float32, 0.1),
    "log products, float32, scale 3": partial(log_products, torch.float32, 3.0),
    "log products, float32, scale 50": partial(log_products, torch.float32, 50.0),
    "log products, float32, all weights 30": partial(log_products, torch.float32, 30.0, equal=True),
    "log products, float64, scale 3": partial(log_products, torch.float64, 3.0),
    "opcheck": opcheck,
}

# File, what is right, what is wrong, the kernel it is in, the check that notices
FAULTS = {
    "targets beyond the last one count": (
        "products", "stay + at_row, mask=in_row, other=1.0", "stay + at_row, mask=in_row, other=0.5",
        "log_product_kernel", "depth 1",
    ),
    "products run on until they overflow": (
        "products", "if taken == fits:", "if taken == fits + 100:",
        "log_product_kernel", "log products, float32, all weights 30",
    ),
    "a mask leaves targets out": (
        "changes", "single + at_row, mask=in_row", "single + at_row, mask=in_row & (target > 2)[None, :]",
        "change_kernel", "depth 2",
    ),
    "a pair of changes is taken for a single one": (
        "changes", "tl.where(number == 1,", "tl.where(number <= 2,", "change_kernel", "depth 3",
    ),
    "changes of the layer above are forgotten": (
        "walk", "mask=in_above, other=0.0) + before\n", "mask=in_above, other=0.0)\n", "walk_kernel", "many sets",
    ),
}  # fmt: skip


def check_with(module: str, right: str, wrong: str, kernel: str, check: str) -> tuple[float, float]:
    """A check with a kernel in which there is a fault."""
    sound = getattr(ops, kernel)
    with TemporaryDirectory() as folder:
        setattr(ops, kernel, getattr(faulty_module(Path(folder), module, right, wrong), kernel))
        try:
            return CHECKS[check]()
        finally:
            setattr(ops, kernel, sound)


def faulty_module(folder: Path, module: str, right: str, wrong: str) -> ModuleType:
    """A module of the engine with a fault in its source."""
    text = (Path(triton_engine.__file__).parent / f"{module}.py").read_text()
    assert text.count(right) == 1, f"{right!r} stands {text.count(right)} times in {module}.py"
    copy = folder / f"{module}.py"
    copy.write_text(text.replace(right, wrong))
    spec = spec_from_file_location(f"faulty_{module}", copy)
    assert spec is not None
    assert spec.loader is not None
    loaded = module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


if __name__ == "__main__":
    main(sys.argv[1:])
