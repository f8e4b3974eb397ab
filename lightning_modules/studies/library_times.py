"""What a gradient of a three-layer VAE costs: python -m lightning_modules.studies.library_times [--before COMMIT].

Common random numbers through `releg.gradient`, all flips and eight per layer, beside REINFORCE; with --before also
through the scalar nodes of an earlier commit's `releg.discrete`. All take turns in one process, on one thread; CPU
seconds are counted, which other processes disturb less than those on the clock. Writes results/library_times.json.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from math import prod
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from lightning_modules.bench.memory import watch_peak
from lightning_modules.bench.tensor_memory import tensor_levels
from lightning_modules.binarized_mnist import BinarizedMNIST
from lightning_modules.run.provenance import provenance
from lightning_modules.studies.library_training import reinforce
from releg.discrete import gradient
from releg.examples.three_layer_vae import ThreeLayerVAE
from releg.files import write_json
from releg.records.file_names import LIBRARY_TIMES

ROWS = 50
DATA_SIZE = prod(BinarizedMNIST.shape)
SIZES = ((10, 6, 4), (20, 12, 8), (50, 30, 20), (100, 60, 40), (200, 120, 80))  # units of z1, z2, z3
LARGEST_BEFORE = 200  # units: beyond, the earlier way takes minutes
Step = Callable[[], Tensor]


def earlier_discrete(commit: str) -> ModuleType:
    """releg/discrete.py as it was, from git."""
    source = subprocess.run(["git", "show", f"{commit}:releg/discrete.py"], capture_output=True, text=True, check=True)
    module = ModuleType("releg_discrete_before")
    sys.modules[module.__name__] = module
    exec(compile(source.stdout, f"{commit}:releg/discrete.py", "exec"), module.__dict__)
    return module


def by_nodes(discrete: ModuleType, vae: ThreeLayerVAE, x: Tensor) -> Step:
    """The surrogate by scalar nodes, one per unit: how the same model had to be written before."""
    names = {f"z{k}": [f"z{k}.{i}" for i in range(size)] for k, size in enumerate(vae.units, start=1)}

    def stacked(z: dict[str, Tensor], layer: str) -> Tensor:
        return torch.stack([z[name] for name in names[layer]], 1).to(x.dtype)

    def node(layer: int, unit: int) -> Any:
        parents = names[f"z{layer - 1}"] if layer > 1 else []

        def logit(x: Tensor, z: dict[str, Tensor]) -> Tensor:
            below = stacked(z, f"z{layer - 1}") if parents else x - vae.mean
            logits: Tensor = vae.encoders[layer - 1](below)
            return logits[:, unit]

        return discrete.bernoulli_node(f"z{layer}.{unit}", parents, logit)

    def f(x: Tensor, z: dict[str, Tensor]) -> Tensor:
        return vae.elbo(x, {layer: stacked(z, layer) for layer in names})

    model = discrete.DiscreteModel([node(k, i) for k, size in enumerate(vae.units, start=1) for i in range(size)])
    return lambda: discrete.gradient(model, f, x, model.draw_noise(x)).surrogate


def steps(vae: ThreeLayerVAE, x: Tensor, before: ModuleType | None) -> dict[str, Step]:
    """What is timed, by name."""
    timed: dict[str, Step] = {
        "reinforce": lambda: reinforce(vae, x),
        "flips": lambda: gradient(vae.model, vae.elbo, x, flips=8).surrogate,
        "all": lambda: gradient(vae.model, vae.elbo, x).surrogate,
    }
    if before is not None and sum(vae.units) <= LARGEST_BEFORE:
        timed["before"] = by_nodes(before, vae, x)
    return timed


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


def measure(units: tuple[int, int, int], before: ModuleType | None, rounds: int, slow_rounds: int) -> dict[str, Any]:
    """Medians over rounds in which all take turns; those that are slow take part in few of them."""
    vae, x = problem(units)
    timed = steps(vae, x, before)
    taken: dict[str, list[float]] = {name: [] for name in timed}
    seconds(timed["all"], vae)  # warm up
    for number in range(rounds):
        for name, step in timed.items():
            if name != "before" or number < slow_rounds:
                taken[name].append(seconds(step, vae))
    medians = {name: statistics.median(values) for name, values in taken.items()}
    return {"units": sum(units), "layers": list(units), "seconds": medians}


def memory() -> dict[str, dict[str, float]]:
    """MiB that a gradient takes at its peak, by the bound that it was given: its tensors, the sample's among them.

    And by how much the process grows, with what malloc and the products' library keep.
    """
    vae, x = problem((100, 60, 40))
    peaks = {}
    for bound in (4, 16, 256):
        step = partial(gradient, vae.model, vae.elbo, x, memory_mib=bound)
        peak = watch_peak()
        step()
        grown = peak() or 0
        peaks[str(bound)] = {
            "tensors": round(max(tensor_levels(step)) / 2**20, 1),
            "process": round(grown / 2**20, 1),
        }
    return peaks


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description="times of a gradient of a three-layer VAE")
    parser.add_argument("--before", help="a commit whose releg/discrete.py is timed as well")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--slow-rounds", type=int, default=3)
    parser.add_argument("--results-dir", type=Path, default=Path("results"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    before = earlier_discrete(options.before) if options.before else None
    rows = []
    for units in SIZES:
        rows.append(measure(units, before, options.rounds, options.slow_rounds))
        print(rows[-1], flush=True)
    report = {
        "provenance": provenance(),
        "before": options.before,
        "rounds": options.rounds,
        "rows": rows,
        "memory_mib": memory(),
    }
    write_json(options.results_dir / LIBRARY_TIMES, report)


if __name__ == "__main__":
    main()
