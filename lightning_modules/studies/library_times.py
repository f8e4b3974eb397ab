"""What a gradient of a three-layer VAE costs: python -m lightning_modules.studies.library_times.

Common random numbers through `releg.gradient`, all flips and eight per layer, beside REINFORCE. All take turns in one
process, on one thread; CPU seconds are counted, which other processes disturb less than those on the clock. Writes
results/library_times.json.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lightning_modules.binarized_mnist import BinarizedMNIST
from lightning_modules.run.provenance import provenance
from lightning_modules.studies.library_training import reinforce
from lightning_modules.studies.tensor_memory import tensor_levels
from releg.discrete import gradient
from releg.examples.three_layer_vae import ThreeLayerVAE
from releg.files import write_json
from releg.records.file_names import LIBRARY_TIMES

ROWS = 50
DATA_SIZE = prod(BinarizedMNIST.shape)
SIZES = ((10, 6, 4), (20, 12, 8), (50, 30, 20), (100, 60, 40), (200, 120, 80))  # units of z1, z2, z3
Step = Callable[[], Tensor]


def steps(vae: ThreeLayerVAE, x: Tensor) -> dict[str, Step]:
    """What is timed, by name."""
    return {
        "reinforce": lambda: reinforce(vae, x),
        "flips": lambda: gradient(vae.model, vae.elbo, x, flips=8).surrogate,
        "all": lambda: gradient(vae.model, vae.elbo, x).surrogate,
    }


def seconds(step: Step, vae: ThreeLayerVAE) -> float:
    """CPU seconds of a gradient with its backward pass."""
    vae.zero_grad()
    start = time.process_time()
    step().mean().backward()
    return time.process_time() - start


def problem(units: tuple[int, int, int]) -> tuple[ThreeLayerVAE, Tensor]:
    """The VAE and a batch."""
    torch.manual_seed(0)
    return ThreeLayerVAE(torch.full((DATA_SIZE,), 0.5), units), torch.randint(2, (ROWS, DATA_SIZE)).float()


def measure(units: tuple[int, int, int], rounds: int) -> dict[str, Any]:
    """Medians over rounds in which all take turns."""
    vae, x = problem(units)
    timed = steps(vae, x)
    taken: dict[str, list[float]] = {name: [] for name in timed}
    seconds(timed["all"], vae)  # warm up
    for _ in range(rounds):
        for name, step in timed.items():
            taken[name].append(seconds(step, vae))
    medians = {name: statistics.median(values) for name, values in taken.items()}
    return {"units": sum(units), "layers": list(units), "seconds": medians}


def memory() -> dict[str, dict[str, float]]:
    """MiB of tensors that a gradient takes at its peak, its sample among them, by the bound that it was given."""
    vae, x = problem((100, 60, 40))
    steps = {bound: partial(gradient, vae.model, vae.elbo, x, memory_mib=bound) for bound in (4, 16, 256)}
    return {str(bound): {"tensors": round(max(tensor_levels(step)) / 2**20, 1)} for bound, step in steps.items()}


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description="times of a gradient of a three-layer VAE")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--results-dir", type=Path, default=Path("results"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for units in SIZES:
        rows.append(measure(units, options.rounds))
        print(rows[-1], flush=True)
    report = {
        "provenance": provenance(),
        "rounds": options.rounds,
        "rows": rows,
        "memory_mib": memory(),
    }
    write_json(options.results_dir / LIBRARY_TIMES, report)


if __name__ == "__main__":
    main()
