"""What the library's estimators cost and reach: python -m lightning_modules.studies.library.

Five ways to estimate the gradient on three models: a sigmoid belief net with the estimators made for it, a three-layer
VAE with `releg.gradient`, a VAE with categorical variables with `releg.functional`; on binarised MNIST. CPU seconds of
one thread are counted, which other processes disturb less than those on the clock. Writes results/library.json, where
what is there is not measured again; `python -m releg.report.library` makes the tables of it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lightning_modules import RESULTS
from lightning_modules.binarized_mnist import BinarizedMNIST
from lightning_modules.run.provenance import provenance
from releg import bounds, discrete, functional
from releg.estimators.base import Estimator
from releg.estimators.common_random_numbers import CommonRandomNumbers
from releg.estimators.disarm import DisArm
from releg.estimators.leave_one_out import LeaveOneOut
from releg.estimators.pruned import Pruned
from releg.estimators.reinmax import ReinMax
from releg.examples.categorical_vae import CategoricalVAE
from releg.examples.three_layer_vae import ThreeLayerVAE
from releg.files import write_json
from releg.records.file_names import LIBRARY
from releg.sbn import SigmoidBeliefNet

PARTS = ("times", "variances", "runs")
BATCH, VALIDATION_IMAGES, ROUNDS = 50, 1000, 9
RATES, SECONDS, POINTS = (0.001, 0.003, 0.01), 20.0, 20
STEPS_BEFORE, DRAWS = 300, 30
SETTINGS = {"batch": BATCH, "validation_images": VALIDATION_IMAGES, "seconds": SECONDS, "steps_before": STEPS_BEFORE}


@dataclass(frozen=True)
class Way:
    """How a gradient is estimated: a function with options, and the same for sigmoid belief nets."""

    function: str
    options: dict[str, Any]
    of_net: Callable[[], Estimator]


WAYS = {
    "all_flips": Way("common_random_numbers", {}, CommonRandomNumbers),
    "eight_flips": Way("common_random_numbers", {"flips": 8}, lambda: Pruned(8)),
    "disarm": Way("disarm", {}, DisArm),
    "leave_one_out": Way("leave_one_out", {}, LeaveOneOut),
    "reinmax": Way("reinmax", {}, ReinMax),
}
CHEAPEST = "leave_one_out"  # trains the weights at which variances are measured


@dataclass(frozen=True)
class Problem:
    """A model with new weights."""

    model: nn.Module
    encoder: Sequence[Tensor]  # the parameters of q
    surrogate: Callable[[Tensor], Tensor]  # of a batch, (N,)
    elbo: Callable[[Tensor], Tensor]  # of images, (N,), from one sample each


def sigmoid_belief_net(way: Way, mean: Tensor) -> Problem:
    """SBN(200-200)."""
    net, estimator = SigmoidBeliefNet(len(mean), [200, 200]), way.of_net()
    estimator.attach(net)

    def surrogate(x: Tensor) -> Tensor:
        return estimator(net, x, estimator.draw_noise(net, x)).surrogate

    parameters = [p for name, p in net.named_parameters() if name.startswith("inference.")]
    return Problem(net, parameters, surrogate, lambda x: bounds.elbo(net, x))


def three_layer_vae(way: Way, mean: Tensor) -> Problem:
    """The example, with 100, 60 and 40 Bernoulli variables."""
    vae = ThreeLayerVAE(mean)

    def surrogate(x: Tensor) -> Tensor:
        return discrete.gradient(vae.model, vae.elbo, x, estimator=way.function, **way.options).surrogate

    def elbo(x: Tensor) -> Tensor:
        return vae.elbo(x, vae.model.sample(x, vae.model.draw_noise(x)).z)

    return Problem(vae, list(vae.encoders.parameters()), surrogate, elbo)


def categorical_vae(way: Way, mean: Tensor) -> Problem:
    """The example, with 30 variables of ten states. All ways use the divergence in closed form."""
    vae = CategoricalVAE(mean)
    options = way.options if way.function == "reinmax" else {**way.options, "one_hot": True}

    def answer(x: Tensor, function: str, options: dict[str, Any]) -> tuple[functional.Answer, Tensor]:
        logits = vae.logits(x)
        estimate = getattr(functional, function)
        return estimate(logits, lambda z: vae.log_likelihood(x, z), **options), vae.divergence(logits)

    def surrogate(x: Tensor) -> Tensor:
        estimated, divergence = answer(x, way.function, options)
        return estimated.surrogate + divergence

    def elbo(x: Tensor) -> Tensor:
        estimated, divergence = answer(x, "likelihood_ratio", {"one_hot": True})
        return estimated.value - divergence

    return Problem(vae, list(vae.encoder.parameters()), surrogate, elbo)


MODELS: dict[str, Callable[[Way, Tensor], Problem]] = {
    "sbn": sigmoid_belief_net,
    "vae": three_layer_vae,
    "categorical": categorical_vae,
}
TRAINED = ("vae", "categorical")  # the race has SBNs


Numbers = Iterator[tuple[str, Any]]  # by way, or by way and rate


class Study:
    """One model.

    Args:
        name: of the model.
        known: what was measured already, and is not measured again.
    """

    def __init__(self, name: str, known: Collection[str] = ()) -> None:
        self.make, self.known = MODELS[name], known
        self.data = BinarizedMNIST(batch_size=BATCH)
        self.validation = next(iter(self.data.eval_loader("val", VALIDATION_IMAGES)))

    def problem(self, way: str) -> Problem:
        """The same weights for every way."""
        torch.manual_seed(0)
        return self.make(WAYS[way], self.data.mean)

    def batches(self) -> Iterator[Tensor]:
        """Epoch after epoch, the same for every way."""
        loader = BinarizedMNIST(batch_size=BATCH).train_dataloader()
        while True:
            yield from loader

    def times(self) -> Numbers:
        """Milliseconds per step of Adam, medians over rounds in which all ways take turns."""
        steps = {way: Training(self.problem(way), 1e-4) for way in WAYS}
        taken: dict[str, list[float]] = {way: [] for way in WAYS}
        for x, count in zip(self.batches(), range(2 + ROUNDS), strict=False):
            for way, training in steps.items():
                training.step(x)
                if count >= 2:
                    taken[way].append(training.last)
        yield from ((way, 1000 * statistics.median(values)) for way, values in taken.items())

    def variances(self) -> Numbers:
        """Of the mean gradient of a batch for the parameters of q, summed, at the same weights for every way."""
        trained, batches = Training(self.problem(CHEAPEST), 0.003), self.batches()
        for _ in range(STEPS_BEFORE):
            trained.step(next(batches))
        weights, x = trained.problem.model.state_dict(), next(batches)
        for way in WAYS:
            problem = self.problem(way)
            problem.model.load_state_dict(weights)
            found = [torch.autograd.grad(problem.surrogate(x).mean(), problem.encoder) for _ in range(DRAWS)]
            flat = torch.stack([torch.cat([g.flatten() for g in grads]) for grads in found])
            yield way, float(flat.var(0).sum())

    def runs(self) -> Numbers:
        """The validation bound against CPU seconds of training, for every way and rate."""
        for way, rate in product(WAYS, RATES):
            if f"{way} {rate}" in self.known:
                continue
            training, batches = Training(self.problem(way), rate), self.batches()
            points = []
            for number in range(POINTS + 1):
                while training.spent < SECONDS * number / POINTS:
                    training.step(next(batches))
                seconds = round(training.spent, 2)
                points.append({"steps": training.steps, "seconds": seconds, "bound": self.bound(training)})
            print(way, rate, points[-1], flush=True)
            yield f"{way} {rate}", points

    @torch.no_grad()
    def bound(self, training: Training) -> float:
        """Minus the mean elbo of validation images, with the same noise at every point."""
        with torch.random.fork_rng():
            torch.manual_seed(1)
            return round(-float(training.problem.elbo(self.validation).mean()), 3)


class Training:
    """Steps of Adam, and the CPU seconds that they take."""

    def __init__(self, problem: Problem, rate: float) -> None:
        self.problem, self.optimiser = problem, torch.optim.Adam(problem.model.parameters(), lr=rate)
        self.steps, self.spent, self.last = 0, 0.0, 0.0

    def step(self, x: Tensor) -> None:
        """One step."""
        start = time.process_time()
        self.optimiser.zero_grad()
        self.problem.surrogate(x).mean().backward()
        self.optimiser.step()
        self.last = time.process_time() - start
        self.steps, self.spent = self.steps + 1, self.spent + self.last


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder to write to; other parts are kept there")
    options = parser.parse_args()
    torch.set_num_threads(1)
    file = options.results / LIBRARY
    for name, part in product(options.models, options.parts):
        known = read(file)["models"].get(name, {}).get(part, {})
        if (known and part != "runs") or (part == "runs" and name not in TRAINED):
            continue
        for key, numbers in getattr(Study(name, known), part)():
            report = read(file)  # another process may have measured another part
            report["provenance"][f"{name} {part}"] = provenance()
            report["settings"] = SETTINGS
            report["models"].setdefault(name, {}).setdefault(part, {})[key] = numbers
            write_json(file, report)


def read(file: Path) -> dict[str, Any]:
    """What has been measured."""
    empty: dict[str, Any] = {"models": {}, "provenance": {}}
    found: dict[str, Any] = json.loads(file.read_bytes()) if file.is_file() else empty
    return found


if __name__ == "__main__":
    main()
