"""How many runs of the grid fit on a GPU at the same time."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from lightning_modules.gradient_variance import GradientVariance
from lightning_modules.grid.plan import RunStatus
from lightning_modules.run.settings import build
from releg.measure.variance import PATHS_AT_ONCE

# CUDA's context with torch's kernels, the workspace of cuBLAS and what torch's allocator rounds up: an allowance, as no
# GPU was at hand to measure it
MIB_PER_PROCESS = 800
MIB = 2**20
ON_GPU = ("auto", "gpu", "cuda")  # Lightning's names of accelerators that take a GPU if there is one


def takes_gpu(config: dict[str, Any]) -> bool:
    """Whether a run with this config trains on a GPU here."""
    return torch.cuda.is_available() and config["trainer"]["accelerator"] in ON_GPU


def mib_of(config: dict[str, Any]) -> int:
    """What a run needs of a GPU's memory at most: its steps, counted on fake tensors, and what any process needs."""
    from releg.without_gpu.memory import bytes_of_steps  # needs triton

    module, data = build(config)
    rows = data.batch_size
    if any(each["class_path"].endswith(GradientVariance.__name__) for each in config["trainer"].get("callbacks") or []):
        rows = max(rows, 2 * PATHS_AT_ONCE)  # gradient variances, whose numbers are of twice the size
    step = bytes_of_steps(
        module,
        lambda x: module.loss_of(x, module.estimator.draw_noise(module.model, x))[0],
        module.build_optimizer,
        (rows, data.data_size),
    )
    return MIB_PER_PROCESS + -(-step // MIB)


def mib_of_largest(runs: Iterable[RunStatus]) -> int:
    """What the largest of the runs needs of a GPU's memory; 0 if none trains on a GPU here."""
    kinds = {(each.run.architecture, each.run.estimator): each.config for each in runs if takes_gpu(each.config)}
    return max(map(mib_of, kinds.values()), default=0)


def free_mib() -> list[int]:
    """Of each GPU here."""
    return [torch.cuda.mem_get_info(place)[0] // MIB for place in range(torch.cuda.device_count())]


def total_mib() -> int:
    """Of the first GPU here, which stands for those of a cluster."""
    return int(torch.cuda.get_device_properties(0).total_memory // MIB)


def check_jobs(jobs: int, need: int, free: Sequence[int]) -> None:
    """Raise ValueError if that many runs do not fit; a single run may always try.

    Args:
        jobs: runs at a time.
        need: MiB of the largest.
        free: MiB of each GPU.
    """
    room = max(1, sum(mib // need for mib in free))
    if jobs > room:
        raise ValueError(
            f"--jobs is {jobs}, but a run needs up to {need} MiB of a GPU's memory, of which "
            f"{' and '.join(map(str, free))} MiB are free, expected no more runs than fit; give --jobs {room}"
        )


def check_share(share: float, need: int, total: int) -> None:
    """Raise ValueError if a run does not fit its share of a GPU with `total` MiB."""
    if share * total < need <= total:
        raise ValueError(
            f"--gpus-per-run is {share:g}, but a run needs up to {need} MiB of a GPU's memory, which has {total} MiB, "
            f"expected a share that holds a run; give --gpus-per-run {-(-100 * need // total) / 100:g}"
        )


def identifiers() -> list[str]:
    """What CUDA_VISIBLE_DEVICES calls the GPUs here."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return given.split(",") if given else [str(place) for place in range(torch.cuda.device_count())]


def least_busy(gpus: Sequence[str], taken: Iterable[str | None]) -> str | None:
    """The GPU with the fewest runs, the first of several; none if there is no GPU."""
    runs = Counter(taken)
    return min(gpus, key=lambda gpu: runs[gpu], default=None)
