"""The numbers of bench.json: a step against its floor, JAX and LR; its growth with units and depth."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lightning_modules.bench.rounds import milliseconds, play_round, ratio
from lightning_modules.bench.steps import CONFIGS, FLOOR, JAX, Name, Problem, contestants, has_jax, ways_here
from lightning_modules.bench.trainer import TRAINER, rounds_with_trainer
from lightning_modules.binary_images import BinaryImages
from lightning_modules.command_line.console import say
from lightning_modules.sbn_module import SBNModule
from releg.estimators.common_random_numbers import CommonRandomNumbers
from releg.weights import load

Row = dict[str, Any]
BATCHES = 20  # training batches at hand for timing
DEPTH, UNITS = 2, 200  # of the nets whose units, and whose depth, vary


@dataclass(frozen=True)
class Bench:
    """What all measurements share."""

    data: BinaryImages
    device: str
    rounds: int
    steps: int  # per turn

    def problem(self, layers: tuple[int, ...], weights: Path | None = None) -> Problem:
        """The problem at the weights of a file, or at the initial ones."""
        module = SBNModule(list(layers), CommonRandomNumbers(), self.data.data_size)
        module.start_from(self.data.mean)
        state = module.model.state_dict() if weights is None else load(weights).state_dict()
        batches: Iterator[Tensor] = islice(self.data.train_dataloader(), BATCHES)
        return Problem(layers, state, [x.to(self.device) for x in batches])


def measure_steps(bench: Bench, layers: tuple[int, ...], weights: Path | None, threads: int) -> list[Row]:
    """A row for each estimator and way: its time, and its ratios to others in the same rounds."""
    with limited_threads(threads):
        problem = bench.problem(layers, weights)
        rows: list[Row] = []
        for name in CONFIGS:
            say(f"SBN({problem.architecture}), {name}, threads: {threads}")
            ways = ways_here(bench.device)
            to = {"floor": (name, FLOOR), "jax": ("lr", JAX), "lr": ("lr", ways[-1]), "bare": (name, ways[-1])}
            others = {(name, way) for way in ways} | {other for other in to.values() if other[1] in ways}
            rounds = rounds_with_trainer(name, problem, sorted(others), bench.steps, bench.rounds)
            facts = {"architecture": problem.architecture, "threads": threads}
            facts["weights"] = "initial" if weights is None else "trained"
            rows += [{**facts, **_numbers(rounds, name, way, to)} for way in (*ways, TRAINER)]
    return rows


def measure_growth(bench: Bench, units: Sequence[int], depths: Sequence[int], threads: int) -> list[Row]:
    """A row for each size and estimator, at initial weights."""
    sizes = [("units", size, DEPTH) for size in units] + [("depth", UNITS, depth) for depth in depths]
    own, order = ways_here(bench.device)[-1], random.Random(0)
    rows: list[Row] = []
    with limited_threads(threads):
        for study, size, depth in sizes:
            say(f"growth with {study}: {size} units, depth {depth}")
            timed = contestants(bench.problem((size,) * depth), [(name, own) for name in CONFIGS])
            rounds = [play_round(timed, bench.steps, order, bench.device) for _ in range(bench.rounds)]
            facts = {"study": study, "units": size, "depth": depth, "threads": threads}
            rows += [{**facts, **_numbers(rounds, name, own, {"lr": ("lr", own)})} for name in CONFIGS]
    return rows


def _numbers(rounds: Sequence[dict[Name, float]], name: str, way: str, to: dict[str, Name]) -> Row:
    """The time of a step, and how many times as long it takes as others in the same rounds."""
    ratios = {what: ratio(rounds, (name, way), other) for what, other in to.items() if other in rounds[0]}
    return {"estimator": name, "way": way, "ms": milliseconds(rounds, (name, way)), "ratio_to": ratios}


@contextmanager
def limited_threads(threads: int) -> Iterator[None]:
    """Limit the threads of torch, and with them those of all compiled code, and of JAX."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    if has_jax():
        from lightning_modules.bench.jax_steps import use_threads

        use_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
