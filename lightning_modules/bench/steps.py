"""Whole training steps, one kind per estimator: what is timed, and whose memory is taken."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

import torch
from torch import Tensor

from lightning_modules.sbn_module import SBNModule
from releg.baselines import InputDependent, RunningAverage
from releg.estimators.base import Estimator
from releg.estimators.common_random_numbers import CommonRandomNumbers
from releg.estimators.likelihood_ratio import LikelihoodRatio
from releg.kernels import has_numba
from releg.seeds import seed_for

Weights = dict[str, Tensor]  # a SigmoidBeliefNet's state

# What each name in bench.json stands for; the argument is the number of threads.
OWN: dict[str, Callable[[int], Estimator]] = {
    "lr": lambda threads: LikelihoodRatio([InputDependent(), RunningAverage()]),
    "crn_cpu": lambda threads: CommonRandomNumbers(engine="cpu", threads=threads),
    "crn_batched": lambda threads: CommonRandomNumbers(engine="batched"),
    "crn_dense": lambda threads: CommonRandomNumbers(engine="dense"),
}
PYRO = "pyro_lr"
ALL = (*OWN, PYRO)
SCALABLE = ("lr", "crn_cpu", "crn_batched")  # those whose growth is studied


def missing() -> dict[str, str]:
    """Estimators that cannot be measured here, each with a sentence that says why."""
    notes = {}
    if not has_numba():
        notes["crn_cpu"] = "crn_cpu is left out, since numba is not installed; pip install numba."
    if find_spec("pyro") is None:
        notes[PYRO] = "pyro_lr is left out, since Pyro is not installed; pip install 'releg[bench]'."
    return notes


def available(names: tuple[str, ...] = ALL) -> list[str]:
    """Those of `names` that can be measured here."""
    return [name for name in names if name not in missing()]


@dataclass(frozen=True)
class Problem:
    """Where a step is taken: the nets, their weights, and the settings that all estimators share."""

    layers: tuple[int, ...]  # shallow first
    weights: Weights
    threads: int
    seed: int

    @property
    def architecture(self) -> str:
        """As the paper writes it, deepest first: 32-64-128-256."""
        return architecture_name(self.layers)


def architecture_name(layers: tuple[int, ...]) -> str:
    """(256, 128, 64, 32), shallow first -> 32-64-128-256."""
    return "-".join(str(size) for size in reversed(layers))


class TrainingStep:
    """A bare loop's step: draw noise, estimate, zero_grad, backward, RMSprop as SBNModule sets it up; loss summed."""

    def __init__(self, module: SBNModule, seed: int) -> None:
        self.module = module
        self.optimizer = module.configure_optimizers()
        self.generator = torch.Generator().manual_seed(seed_for(seed, "bench"))
        self.parts: dict[str, float] = {}  # seconds of the last step, by what they were spent on
        self._start = {name: value.clone() for name, value in module.model.state_dict().items()}

    def restore(self) -> None:
        """Go back to the weights at which the step was made."""
        self.module.model.load_state_dict(self._start)

    def __call__(self, x: Tensor) -> None:
        """Train on x (B, data_size) once."""
        marks = [time.perf_counter()]
        estimator, model = self.module.estimator, self.module.model
        noise = estimator.draw_noise(model, x, self.generator)
        marks.append(time.perf_counter())
        answer = estimator(model, x, noise)
        loss = answer.surrogate if answer.auxiliary_loss is None else answer.surrogate + answer.auxiliary_loss
        marks.append(time.perf_counter())
        self.optimizer.zero_grad()
        loss.sum().backward()
        marks.append(time.perf_counter())
        self.optimizer.step()
        marks.append(time.perf_counter())
        names = ("noise", "estimate", "backward", "rmsprop")
        self.parts = {name: end - start for name, start, end in zip(names, marks, marks[1:], strict=False)}


def module_for(layers: tuple[int, ...], estimator: Estimator, weights: Weights | None, seed: int) -> SBNModule:
    """A module at the given weights; initial ones if there are none."""
    module = SBNModule(list(layers), estimator, seed=seed)
    if weights is not None:
        module.model.load_state_dict(weights)
    return module


def make_step(name: str, problem: Problem) -> TrainingStep:
    """The step of that estimator, on nets of its own."""
    if name == PYRO:
        from lightning_modules.bench.pyro_step import PyroStep  # Pyro is an optional extra

        estimator = OWN["lr"](problem.threads)  # owns the baselines' nets
        return PyroStep(module_for(problem.layers, estimator, problem.weights, problem.seed), problem.seed)
    estimator = OWN[name](problem.threads)
    return TrainingStep(module_for(problem.layers, estimator, problem.weights, problem.seed), problem.seed)
