"""What the library's estimators cost and reach: python -m lightning_modules.studies.library.

Five ways to estimate the gradient on three models: a sigmoid belief net with the estimators made for it, a three-layer
VAE with `releg.gradient`, a VAE with categorical variables with `releg.functional`; on binarised MNIST. Writes
results/library.json, library.md and library.png; `timed` says how times are measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from lightning_modules.binarized_mnist import BinarizedMNIST
from lightning_modules.studies.timed import Step, Timed, measure_all, milliseconds, parser_of
from releg import bounds, discrete, functional
from releg.estimators.base import Estimator
from releg.estimators.common_random_numbers import CommonRandomNumbers
from releg.estimators.disarm import DisArm
from releg.estimators.leave_one_out import LeaveOneOut
from releg.estimators.pruned import Pruned
from releg.estimators.reinmax import ReinMax
from releg.examples.categorical_vae import CategoricalVAE
from releg.examples.three_layer_vae import ThreeLayerVAE
from releg.records.file_names import LIBRARY
from releg.report.library import write_library
from releg.sbn import SigmoidBeliefNet

BATCH, VALIDATION_IMAGES = 50, 1000
RATES, SECONDS, POINTS = [0.001, 0.003, 0.01], 10, 20
STEPS_BEFORE, DRAWS = 300, 30
SETTINGS = {
    "batch": BATCH,
    "validation_images": VALIDATION_IMAGES,
    "rates": RATES,
    "seconds": SECONDS,
    "steps_before": STEPS_BEFORE,
}


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


@dataclass(frozen=True)
class Problem:
    """A model with new weights."""

    model: nn.Module
    encoder: Sequence[Tensor]  # the parameters of q
    surrogate: Callable[[Tensor], Tensor]  # of a batch, (N,)
    elbo: Callable[[Tensor], Tensor]  # of images, (N,), from one sample each

    def trained_by(self, rate: float, batches: Iterator[Tensor]) -> Step:
        """A step of Adam on the next batch."""
        optimiser = torch.optim.Adam(self.model.parameters(), lr=rate)

        def step() -> None:
            optimiser.zero_grad()
            self.surrogate(next(batches)).mean().backward()
            optimiser.step()

        return step


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

    def answer(x: Tensor, function: str, options: dict[str, Any]) -> tuple[functional.Answer, Tensor]:
        logits = vae.logits(x)
        estimate = partial(getattr(functional, function), one_hot=True, **options)
        return estimate(logits, lambda z: vae.log_likelihood(x, z)), vae.divergence(logits)

    def surrogate(x: Tensor) -> Tensor:
        estimated, divergence = answer(x, way.function, way.options)
        return estimated.surrogate + divergence

    def elbo(x: Tensor) -> Tensor:
        estimated, divergence = answer(x, "likelihood_ratio", {})
        return estimated.value - divergence

    return Problem(vae, list(vae.encoder.parameters()), surrogate, elbo)


MODELS: dict[str, Callable[[Way, Tensor], Problem]] = {
    "sbn": sigmoid_belief_net,
    "vae": three_layer_vae,
    "categorical": categorical_vae,
}


class Study:
    """One model, with its data.

    Args:
        name: of the model.
    """

    def __init__(self, name: str) -> None:
        self.make = MODELS[name]
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

    def times(self) -> dict[str, float]:
        """Milliseconds per step."""
        return milliseconds({way: partial(self._prepared, way) for way in WAYS})

    def _prepared(self, way: str) -> Step:
        return self.problem(way).trained_by(1e-4, self.batches())

    def variances(self) -> dict[str, float]:
        """Of the mean gradient of a batch for the parameters of q, summed, at the same weights for every way."""
        trained, batches = self.problem("leave_one_out"), self.batches()
        step = trained.trained_by(0.003, batches)
        for _ in range(STEPS_BEFORE):
            step()
        weights, x = trained.model.state_dict(), next(batches)
        return {way: self._variance(way, weights, x) for way in WAYS}

    def _variance(self, way: str, weights: dict[str, Any], x: Tensor) -> float:
        problem = self.problem(way)
        problem.model.load_state_dict(weights)
        found = [torch.autograd.grad(problem.surrogate(x).mean(), problem.encoder) for _ in range(DRAWS)]
        return float(torch.stack([torch.cat([g.flatten() for g in grads]) for grads in found]).var(0).sum())

    def training(self) -> list[dict[str, Any]]:
        """The negative elbo of validation images against CPU seconds of training, for every way and rate."""
        return [self._trained(way, rate) for way, rate in product(WAYS, RATES)]

    def _trained(self, way: str, rate: float) -> dict[str, Any]:
        problem = self.problem(way)
        timed, points = Timed(problem.trained_by(rate, self.batches())), []
        for number in range(POINTS + 1):
            timed.until(SECONDS * number / POINTS)
            seconds = round(sum(timed.seconds), 2)
            points.append({"steps": len(timed.seconds), "seconds": seconds, "negative_elbo": self._validated(problem)})
        return {"way": way, "rate": rate, "points": points}

    @torch.no_grad()
    def _validated(self, problem: Problem) -> float:
        """The negative elbo, with the same noise at every point."""
        with torch.random.fork_rng():
            torch.manual_seed(1)
            return round(-float(problem.elbo(self.validation).mean()), 3)


def main() -> None:
    """Measure and write."""
    options = parser_of(__doc__, MODELS).parse_args()
    measure_all(options, LIBRARY, Study, SETTINGS)
    write_library(options.results)


if __name__ == "__main__":
    main()
