"""The steps that are timed: ours, eager and compiled, those in JAX, and their floor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from lightning_modules.bench.floor import Floor
from lightning_modules.bench.rounds import Contestant
from lightning_modules.compiled_step import has_compiler
from lightning_modules.shipped_estimators import read_estimator
from lightning_modules.training_step import TrainingStep, Weights, module_for
from releg.architecture import architecture_name

CONFIGS = {"lr": "likelihood_ratio", "crn": "common_random_numbers"}  # by the estimator's name in bench.json
SCANNED = {"lr": 100, "crn": 5}  # steps that JAX takes at once
FLOOR, JAX, EAGER, COMPILED = "floor", "jax", "eager", "compiled"
Name = tuple[str, str]  # estimator, and the way that its step is taken


@dataclass(frozen=True)
class Problem:
    """The net, its weights and the batches that all steps share."""

    layers: tuple[int, ...]  # shallow first
    weights: Weights
    batches: Sequence[Tensor]  # (B, data_size) each
    seed: int = 0

    @property
    def architecture(self) -> str:
        """As the paper writes it, deepest first: 32-64-128-256."""
        return architecture_name(self.layers)

    @property
    def device(self) -> str:
        """Where the steps are taken."""
        return self.batches[0].device.type


class OurSteps:
    """Steps of a bare loop with an estimator: a shipped one or a YAML file like theirs."""

    def __init__(self, estimator: str, problem: Problem, compiled: bool) -> None:
        module = module_for(problem.layers, read_estimator(estimator), problem.weights, problem.seed, problem.device)
        if compiled:
            module.compile_step()
        self.step = TrainingStep(module, problem.seed)
        self._batches = problem.batches

    def restore(self) -> None:
        """Go back to the weights that were given at the beginning."""
        self.step.restore()

    def take(self, steps: int) -> int:
        """Train on the first batches."""
        for number in range(steps):
            self.step(self._batches[number % len(self._batches)])
        return steps


class JaxSteps:
    """Steps in JAX with LR or CRN: a block of them is scanned."""

    def __init__(self, name: str, problem: Problem) -> None:
        import jax

        from lightning_modules.bench import jax_steps  # JAX is an optional extra

        module = module_for(problem.layers, read_estimator(CONFIGS[name]), problem.weights, problem.seed)
        step = jax_steps.make_step(jax_steps.LOSSES[name], module.model.mean)
        self._start = jax_steps.start(module.state_dict(), problem.seed)
        self._scanned, count = SCANNED[name], len(problem.batches)
        self._batches = jax.numpy.stack([problem.batches[k % count].numpy() for k in range(self._scanned)])
        self._steps: Any = jax.jit(lambda state, xs: jax.lax.scan(step, state, xs))
        self._wait = jax.block_until_ready

    def restore(self) -> None:
        """Go back to the weights that were given at the beginning."""
        self._state = self._start

    def take(self, steps: int) -> int:
        """Train on the first batches, one block of steps."""
        self._state, _ = self._wait(self._steps(self._state, self._batches))
        return self._scanned


def has_jax() -> bool:
    """Whether the extra `bench` is installed."""
    return find_spec("jax") is not None


def ways_here(device: str) -> list[str]:
    """How a step can be taken here, the fastest of ours last."""
    jax = [JAX] if has_jax() and device == "cpu" else []
    return [FLOOR, *jax, EAGER, *([COMPILED] if has_compiler(torch.device(device)) else [])]


def contestants(problem: Problem, names: Sequence[Name]) -> dict[Name, Contestant]:
    """What these names stand for, ready to be timed."""
    data_size = problem.batches[0].shape[1]
    rows = len(problem.batches[0])
    make: Mapping[str, Callable[[str], Contestant]] = {
        FLOOR: lambda name: Floor(data_size, problem.layers, rows, name == "lr", problem.device),
        EAGER: lambda name: OurSteps(CONFIGS[name], problem, compiled=False),
        COMPILED: lambda name: OurSteps(CONFIGS[name], problem, compiled=True),
        JAX: lambda name: JaxSteps(name, problem),
    }
    return {(name, way): make[way](name) for name, way in names}
