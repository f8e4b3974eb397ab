"""The estimators that are compared, by the names they have in bench.json, and a training step of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

from lightning_modules.shipped_estimators import read_estimator
from lightning_modules.training_step import TrainingStep, Weights, module_for
from releg.architecture import architecture_name
from releg.baselines import InputDependent, RunningAverage
from releg.compiled import has_numba
from releg.estimators.base import Estimator
from releg.estimators.common_random_numbers import CommonRandomNumbers
from releg.estimators.likelihood_ratio import LikelihoodRatio

# What each name in bench.json stands for.
OWN: dict[str, Callable[[], Estimator]] = {
    "lr": lambda: LikelihoodRatio([InputDependent(), RunningAverage()]),
    "crn_cpu": lambda: CommonRandomNumbers(engine="cpu"),
    "crn_triton": lambda: CommonRandomNumbers(engine="triton"),
    "crn_batched": lambda: CommonRandomNumbers(engine="batched"),
    "crn_dense": lambda: CommonRandomNumbers(engine="dense"),
}
PYRO = "pyro_lr"
ALL = (*OWN, PYRO)
ELSEWHERE = {"cpu": ("crn_triton",), "cuda": ("crn_cpu", PYRO)}  # by device: what does not run there
SCALABLE = ("lr", "crn_cpu", "crn_triton", "crn_batched")  # those whose growth is studied
MOST_UNITS = {"crn_batched": 800}  # per layer, where a step would take minutes beyond


def missing() -> dict[str, str]:
    """Estimators that cannot be measured here, each with a sentence that says why."""
    notes = {}
    if not has_numba():
        notes["crn_cpu"] = "crn_cpu is left out, since numba is not installed; pip install numba."
    if find_spec("pyro") is None:
        notes[PYRO] = "pyro_lr is left out, since Pyro is not installed; pip install -e '.[bench]'."
    return notes


def available(names: tuple[str, ...] = ALL, device: str = "cpu") -> list[str]:
    """The `names` that can be measured here, on that device."""
    return [name for name in names if name not in (*missing(), *ELSEWHERE[device])]


@dataclass(frozen=True)
class Problem:
    """The nets, their weights, and the settings that all estimators share."""

    layers: tuple[int, ...]  # shallow first
    weights: Weights
    seed: int
    device: str = "cpu"

    @property
    def architecture(self) -> str:
        """As the paper writes it, deepest first: 32-64-128-256."""
        return architecture_name(self.layers)


def make_step(name: str, problem: Problem) -> TrainingStep:
    """Build that estimator's step on its own nets. The name may also be that of a shipped config or a YAML file."""
    if name == PYRO:
        from lightning_modules.bench.pyro_step import PyroStep  # Pyro is an optional extra

        estimator = OWN["lr"]()  # owns the baselines' nets
        return PyroStep(module_for(problem.layers, estimator, problem.weights, problem.seed), problem.seed)
    estimator = OWN[name]() if name in OWN else read_estimator(name)
    module = module_for(problem.layers, estimator, problem.weights, problem.seed, problem.device)
    return TrainingStep(module, problem.seed)
