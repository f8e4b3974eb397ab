"""Two of Pyro's examples with `releg.pyro.ELBO` as their loss: python -m lightning_modules.studies.pyro_examples PYRO.

PYRO is a checkout of Pyro, whose examples/air and examples/vae/ss_vae_M2.py are imported, not changed. Their data are
made from the repository's MNIST. Writes results/pyro.json and results/pyro.md; `timed` says how times are measured.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyro
import torch
from pyro import poutine
from pyro.contrib.examples import multi_mnist
from pyro.infer import SVI, Trace_ELBO, TraceEnum_ELBO, TraceGraph_ELBO, config_enumerate
from pyro.optim import Adam  # type: ignore[attr-defined]
from torch import Tensor, nn
from torchvision.datasets import MNIST

from lightning_modules.data_parts.archives import REPOSITORY_DATA, read_pixels
from lightning_modules.studies.timed import Step, Timed, measure_all, milliseconds, parser_of
from releg.pyro import ELBO
from releg.records.file_names import PYRO
from releg.report.pyro import write_pyro

IMAGES, HELD_OUT = 10_000, 500
STEPS_BEFORE, STEPS_OF_BASELINES, DRAWS = 100, 100, 60


@dataclass(frozen=True)
class Problem:
    """An example with new weights."""

    net: nn.Module
    model: Callable[..., Any]
    guide: Callable[..., Any]
    gradient: Callable[[], Tensor]  # of the parameters that belong to discrete sites alone
    options: Mapping[str, Any] = field(default_factory=dict)  # of model and guide, beside the images

    def loss(self, function: Callable[..., Any], images: Tensor) -> float:
        """What a loss of Pyro says per image."""
        return float(function(self.model, self.guide, images, **self.options)) / len(images)


@dataclass(frozen=True)
class Way:
    """How the gradient is estimated."""

    loss: Callable[[], Any]
    baseline: str = ""  # what the example does beside: "nets" of its own, or an "average"
    enumerated: bool = False


def air(folder: Path, way: Way) -> Problem:
    """Attend, infer, repeat, with the settings of Pyro's tutorial."""
    sizes = {"num_steps": 3, "x_size": 50, "window_size": 28, "z_what_size": 50, "rnn_hidden_size": 256}
    nets = {name: [200] for name in ("encoder_net", "decoder_net", "predict_net", "bl_predict_net")}
    priors = {"decoder_output_bias": -2, "decoder_output_use_sigmoid": True, "scale_prior_sd": 0.2}
    net = imported(folder / "air", "air").AIR(**sizes, **nets, **priors, use_baselines=way.baseline == "nets")
    last = net.predict.mlp.seq[-1]  # its first output is the probability of z_pres
    options = {"batch_size": None, "z_pres_prior_p": presence_prior}
    return Problem(net, net.model, net.guide, lambda: torch.cat([last.weight.grad[0], last.bias.grad[:1]]), options)


def presence_prior(position: int, chance: float = 0.01) -> float:
    """P(another object | as many before): every number of objects is `chance` times as probable as one less."""
    rest = [sum(chance**n for n in range(first, 4)) for first in range(4)]
    return rest[position + 1] / rest[position]


def ss_vae(folder: Path, way: Way) -> Problem:
    """The semi-supervised VAE on images without labels: a digit and its style are latent."""
    visdom = ModuleType("visdom")  # draws the example's plots on a web server, which nothing here uses
    visdom.Visdom = None  # type: ignore[attr-defined]
    sys.modules.setdefault("visdom", visdom)
    net = imported(folder / "vae", "ss_vae_M2").SSVAE(hidden_layers=[500], config_enum="parallel")
    guide: Callable[..., Any] = net.guide
    if way.enumerated:
        guide = config_enumerate(guide, "parallel", expand=True)
    if way.baseline:
        settings: Any = {"baseline": {"use_decaying_avg_baseline": True}}
        guide = poutine.infer_config(guide, lambda site: settings if site["name"] == "y" else {})
    return Problem(net, net.model, guide, lambda: torch.cat([p.grad.flatten() for p in net.encoder_y.parameters()]))


def imported(folder: Path, name: str) -> Any:
    """A module of an example, which imports others beside it."""
    sys.path.insert(0, str(folder))
    return import_module(name)


def multi_mnist_images(digits: np.ndarray) -> np.ndarray:
    """Up to two digits per image, by Pyro's own generator."""
    np.random.seed(681307)  # the example's
    source = {"digits": digits.reshape(-1, 28, 28), "labels": np.zeros(len(digits))}
    return multi_mnist.mk_dataset(IMAGES, source, 2, 50)[0]


@dataclass(frozen=True)
class Example:
    """One of the two: how it is made, its images from those of MNIST, and how it is trained."""

    make: Callable[[Path, Way], Problem]
    images: Callable[[np.ndarray], np.ndarray]
    ways: Mapping[str, Way]
    batch: int
    rates: Sequence[float]  # of Adam; the examples' own, 0.0001 and 0.00042, are for longer runs
    seconds: float


def releg_ways(vectorize: bool) -> dict[str, Way]:
    """The losses of this repository."""
    names = ("leave_one_out", "disarm", "common_random_numbers")
    return {f'`ELBO("{name}")`': Way(partial(ELBO, name, vectorize=vectorize)) for name in names}


NO_BASELINE = {"`TraceGraph_ELBO`": Way(TraceGraph_ELBO)}
WITH_NETS = {"`TraceGraph_ELBO`, the example's baseline nets": Way(TraceGraph_ELBO, "nets")}
WITH_AVERAGE = {"`TraceGraph_ELBO`, decaying average": Way(TraceGraph_ELBO, "average")}
ENUMERATED = {"`TraceEnum_ELBO`": Way(partial(TraceEnum_ELBO, max_plate_nesting=1), enumerated=True)}
OF_AIR = NO_BASELINE | WITH_NETS | releg_ways(vectorize=False)
OF_SS_VAE = NO_BASELINE | WITH_AVERAGE | ENUMERATED | releg_ways(vectorize=True)
EXAMPLES = {
    "air": Example(air, multi_mnist_images, OF_AIR, 64, [0.001], 30.0),
    "ss_vae": Example(ss_vae, lambda digits: digits[:IMAGES], OF_SS_VAE, 200, [0.00042, 0.002], 10.0),
}


class Study:
    """One example, with its data.

    Args:
        example: which one.
        folder: of Pyro's examples.
    """

    def __init__(self, example: Example, folder: Path) -> None:
        self.example, self.folder = example, folder
        images = example.images(read_pixels(MNIST, REPOSITORY_DATA)[:60_000])
        self.images = torch.from_numpy(images.astype(np.float32) / 255)

    def problem(self, way: Way) -> Problem:
        """The same weights for every way."""
        pyro.clear_param_store()
        pyro.set_rng_seed(0)
        made = self.example.make(self.folder, way)
        pyro.set_rng_seed(1)
        return made

    def step(self, problem: Problem, loss: Any, rate: float) -> Step:
        """A step of Adam on a random mini-batch; 0.1 is the example's own rate for its baseline nets."""
        optimiser = Adam(lambda name: {"lr": 0.1 if "bl_" in name else rate})
        svi = SVI(problem.model, problem.guide, optimiser, loss=loss)

        def step() -> None:
            batch = HELD_OUT + torch.randint(len(self.images) - HELD_OUT, (self.example.batch,))
            svi.step(self.images[batch], **problem.options)

        return step

    def times(self) -> dict[str, float]:
        """Milliseconds per step."""
        return milliseconds({name: partial(self._prepared, way) for name, way in self.example.ways.items()})

    def _prepared(self, way: Way) -> Step:
        return self.step(self.problem(way), way.loss(), 1e-4)

    def variances(self) -> dict[str, float]:
        """Of the gradient per image for the parameters of discrete sites, on one mini-batch, at the same weights.

        The weights are those after a few steps with common random numbers.
        """
        last = [*self.example.ways.values()][-1]
        trained = self.problem(last)
        step = self.step(trained, last.loss(), self.example.rates[0])
        for _ in range(STEPS_BEFORE):
            step()
        weights = {name: value.clone() for name, value in trained.net.state_dict().items()}
        return {name: self._variance(way, weights) for name, way in self.example.ways.items()}

    def _variance(self, way: Way, weights: Mapping[str, Tensor]) -> float:
        problem, loss, batch = self.problem(way), way.loss(), self.images[-self.example.batch :]
        problem.net.load_state_dict(weights, strict=False)  # which have no baselines
        step = self.step(problem, loss, 0.0)
        for _ in range(STEPS_OF_BASELINES if way.baseline else 0):
            step()
        gradients = []
        for _ in range(DRAWS):
            problem.net.zero_grad()
            problem.loss(loss.loss_and_grads, batch)
            gradients.append(problem.gradient() / len(batch))
        return float(torch.stack(gradients).var(0).sum())

    def training(self) -> dict[str, list[dict[str, float]]]:
        """The negative elbo of held-out images after the same CPU seconds, by way and rate."""
        return {
            name: [self._trained(way, rate) for rate in self.example.rates] for name, way in self.example.ways.items()
        }

    def _trained(self, way: Way, rate: float) -> dict[str, float]:
        problem = self.problem(way)
        timed = Timed(self.step(problem, way.loss(), rate))
        timed.until(self.example.seconds)
        losses = [problem.loss(Trace_ELBO().loss, self.images[:HELD_OUT]) for _ in range(5)]
        return {"rate": rate, "steps": len(timed.seconds), "negative_elbo": statistics.mean(losses)}


def main() -> None:
    """Measure and write."""
    parser = parser_of(__doc__, EXAMPLES)
    parser.add_argument("pyro", type=Path, help="a checkout of github.com/pyro-ppl/pyro")
    options = parser.parse_args()
    command = ["git", "-C", str(options.pyro), "rev-parse", "HEAD"]
    commit = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    settings = {
        "pyro": f"{pyro.__version__}, examples of {commit}",
        "held_out": HELD_OUT,
        "steps_before": STEPS_BEFORE,
        "steps_of_baselines": STEPS_OF_BASELINES,
        "seconds": {name: example.seconds for name, example in EXAMPLES.items()},
    }
    measure_all(options, PYRO, lambda name: Study(EXAMPLES[name], options.pyro / "examples"), settings)
    write_pyro(options.results)


if __name__ == "__main__":
    main()
