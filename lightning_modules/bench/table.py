"""The main table: time and memory of a step for every architecture, at initial and at trained weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lightning_modules.bench.device import mib_at_peak
from lightning_modules.bench.floor import Floor, make_floors
from lightning_modules.bench.fresh_process import FreshProcess
from lightning_modules.bench.memory import request_for
from lightning_modules.bench.rounds import Schedule, Step, interleave, summary
from lightning_modules.bench.steps import Problem, available, make_step
from lightning_modules.binary_images import BinaryImages
from lightning_modules.command_line.console import say
from lightning_modules.sbn_module import SBNModule
from lightning_modules.training_step import TrainingStep, Weights, module_for
from releg.architecture import architecture_name
from releg.estimators.common_random_numbers import CommonRandomNumbers

Row = dict[str, object]
BATCHES = 20  # training batches kept at hand for timing
FEW = ("lr", "crn_cpu", "crn_triton")  # the estimators that are also measured with one thread, and through the Trainer


@dataclass(frozen=True)
class Bench:
    """What all measurements share."""

    data: BinaryImages
    batches: Sequence[Tensor]  # (B, data_size) each
    schedule: Schedule
    memory_once: bool  # at initial weights only, in one process; else at both, the largest of three
    threads: int
    seed: int
    device: str = "cpu"

    def problem(self, layers: tuple[int, ...], weights: Weights | None = None) -> Problem:
        """The problem at these weights, or at the initial ones."""
        return Problem(layers, weights or self.initial_weights(layers), self.seed, self.device)

    def initial_weights(self, layers: tuple[int, ...]) -> Weights:
        """The weights with which a run of this seed starts."""
        module = SBNModule(list(layers), CommonRandomNumbers(), self.data.data_size, seed=self.seed)
        return {**copy_of(module.model.state_dict()), "mean": self.data.mean}

    def floors(self, problem: Problem, names: Sequence[str]) -> dict[str, Floor]:
        """The floors that these estimators are compared with, by name."""
        return make_floors(self.data.data_size, problem.layers, len(self.batches[0]), list(names), self.device)

    def time(self, names: Sequence[str], problem: Problem) -> dict[str, Row]:
        """Each estimator's time and its ratio to LR's."""
        steps: dict[str, Step] = {name: make_step(name, problem) for name in names}
        rounds = interleave({**steps, **self.floors(problem, names)}, self.batches, self.schedule, self.seed)
        return {name: summary(rounds, name) for name in names}


ViaTrainer = Callable[[Bench, Problem], dict[str, Row]]  # times of each estimator through the Trainer


def first_batches(data: BinaryImages, count: int = BATCHES) -> list[Tensor]:
    """The first whole training batches of the data's seed."""
    batches = zip(range(count), data.train_dataloader(), strict=False)
    return [x for _, x in batches if len(x) == data.batch_size]


def train(bench: Bench, layers: tuple[int, ...], steps: int) -> Weights:
    """Weights after that many steps of common random numbers, as `releg fit` would take them."""
    estimator = CommonRandomNumbers(engine="auto")
    module = module_for(layers, estimator, bench.initial_weights(layers), bench.seed, bench.device)
    step = TrainingStep(module, bench.seed)
    for _, x in zip(range(steps), endless(bench.data), strict=False):
        step(x.to(bench.device))
    return copy_of(step.module.model.state_dict())


def endless(data: BinaryImages) -> Iterator[Tensor]:
    """Training batches without end."""
    loader = data.train_dataloader()
    while True:
        yield from loader


def copy_of(state: dict[str, Tensor]) -> Weights:
    """A copy that further training does not change."""
    return {name: value.detach().cpu().clone() for name, value in state.items()}


def measure_table(
    bench: Bench, architectures: Iterable[tuple[int, ...]], train_steps: int, via_trainer: ViaTrainer | None
) -> list[Row]:
    """The rows of bench.json: with all threads, LR and the cpu kernel with one too; bare and through the Trainer."""
    rows = []
    with FreshProcess() as fresh:
        for layers in architectures:
            say(f"SBN({architecture_name(layers)}): {train_steps} steps of training, then time and memory of a step")
            initial, trained = bench.problem(layers), bench.problem(layers, train(bench, layers, train_steps))
            memory = measure_memory(bench, fresh, initial)
            rows += _rows(bench, initial, memory, {"weights": "initial", "trained_steps": 0}, via_trainer)
            if not bench.memory_once:
                memory = measure_memory(bench, fresh, trained)
            rows += _rows(bench, trained, memory, {"weights": "trained", "trained_steps": train_steps}, via_trainer)
    return rows


def measure_memory(bench: Bench, fresh: FreshProcess, problem: Problem) -> dict[str, float | None]:
    """Each estimator's peak in MiB: of one process, or the largest of three; on a GPU, of this process."""
    if bench.device == "cuda":
        return {name: peak_on_cuda(name, problem, bench.batches[0]) for name in available(device="cuda")}
    requests = {name: request_for(name, problem, bench.batches[0]) for name in available()}
    repeats = 1 if bench.memory_once else 3
    return {name: largest(fresh.peak_mib(request) for _ in range(repeats)) for name, request in requests.items()}


def peak_on_cuda(name: str, problem: Problem, x: Tensor) -> float:
    """MiB of a step, as torch counts them on the GPU."""
    step = make_step(name, problem)

    def steps() -> None:
        step(x[:1])  # leaves gradients and optimiser state behind, which the next one needs beside its own
        step(x)

    return mib_at_peak(steps)


def _rows(
    bench: Bench, problem: Problem, memory: dict[str, float | None], columns: Row, via_trainer: ViaTrainer | None
) -> list[Row]:
    """Rows at the same weights; memory is measured with all threads, bare."""
    rows = _rows_of_threads(bench, problem, memory, columns, via_trainer)
    if bench.threads > 1 and bench.device == "cpu":
        with limited_threads(1):
            alone, few = replace(bench, threads=1), dict.fromkeys(available(FEW))
            rows += _rows_of_threads(alone, problem, few, columns, via_trainer)
    return rows


def _rows_of_threads(
    bench: Bench,
    problem: Problem,
    memory: Mapping[str, float | None],
    columns: Row,
    via_trainer: ViaTrainer | None,
) -> list[Row]:
    ways = {"bare": bench.time(list(memory), problem), "trainer": via_trainer(bench, problem) if via_trainer else {}}
    return [
        {
            "architecture": problem.architecture,
            **columns,
            "estimator": name,
            "via": via,
            "threads": bench.threads,
            **times,
            "peak_mib": memory[name] if via == "bare" else None,
            "batch_size": len(bench.batches[0]),
            "seed": bench.seed,
        }
        for via, rows in ways.items()
        for name, times in rows.items()
    ]


@contextmanager
def limited_threads(threads: int) -> Iterator[None]:
    """Limit torch's threads during the measurement, and with them those of all compiled code."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def largest(values: Iterable[float | None]) -> float | None:
    """The largest of several measurements; None if one failed."""
    every = list(values)
    known = [value for value in every if value is not None]
    return max(known) if len(known) == len(every) else None
