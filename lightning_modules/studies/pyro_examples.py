"""Two of Pyro's examples with `releg.pyro.ELBO` as their loss: python -m lightning_modules.studies.pyro_examples PYRO.

PYRO is a checkout of Pyro, whose examples/air and examples/vae/ss_vae_M2.py are imported, not changed. Their data are
made from the repository's MNIST. CPU seconds of one thread are counted. Writes results/pyro.json and results/pyro.md;
what the first has is not measured again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
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
from torch import Tensor
from torchvision.datasets import MNIST

from lightning_modules import RESULTS, ROOT
from lightning_modules.run.provenance import provenance
from releg.files import write_json
from releg.pyro import ELBO
from releg.records.file_names import PYRO
from releg.report.pyro import write_pyro

PARTS = ("times", "variances", "training")
IMAGES, HELD_OUT = 10_000, 500
STEPS_BEFORE, STEPS_OF_BASELINES, DRAWS, ROUNDS = 100, 100, 60, 21
NO_BASELINE = "`TraceGraph_ELBO`"


@dataclass(frozen=True)
class Problem:
    """An example with freshly drawn weights."""

    model: Callable[..., Any]
    guide: Callable[..., Any]
    step: Callable[[SVI], float]  # on the next mini-batch
    fixed: Callable[[Any], Any]  # a call with a mini-batch that is always the same
    held_out: Callable[[Any], float]  # the loss per image
    of_discrete: Sequence[Tensor]  # parameters of the discrete sites alone
    batch: int


@dataclass(frozen=True)
class Way:
    """How the gradient is estimated."""

    label: str
    loss: Callable[[], Any]
    baseline: str = ""  # what the example does beside: "nets" of its own, or an "average"
    enumerated: bool = False


def releg_ways(vectorize: bool) -> list[Way]:
    """The losses of this repository."""
    names = ("leave_one_out", "disarm", "common_random_numbers")
    return [Way(f'`ELBO("{name}")`', partial(ELBO, name, vectorize=vectorize)) for name in names]


# --- the examples


def air(example: Path, way: Way, images: Tensor) -> Problem:
    """Attend, infer, repeat, with the settings of Pyro's tutorial."""
    module = imported(example / "air", "air")
    net = module.AIR(
        num_steps=3,
        x_size=50,
        window_size=28,
        z_what_size=50,
        rnn_hidden_size=256,
        encoder_net=[200],
        decoder_net=[200],
        predict_net=[200],
        bl_predict_net=[200],
        decoder_output_bias=-2,
        decoder_output_use_sigmoid=True,
        scale_prior_sd=0.2,
        use_baselines=way.baseline == "nets",
    )
    last = net.predict.mlp.seq[-1]
    options = {"z_pres_prior_p": presence_prior}
    train, test = images[HELD_OUT:], images[:HELD_OUT]
    return Problem(
        net.model,
        net.guide,
        lambda svi: svi.step(train, batch_size=64, **options),
        lambda call: call(net.model, net.guide, train[:64], batch_size=64, **options),
        lambda call: call(net.model, net.guide, test, batch_size=HELD_OUT, **options) / HELD_OUT,
        [last.weight, last.bias],  # of which only the first output belongs to z_pres
        64,
    )


def presence_prior(position: int, chance: float = 0.01) -> float:
    """P(another object | as many before): every number of objects is `chance` times as probable as one less."""
    rest = [sum(chance**n for n in range(first, 4)) for first in range(4)]
    return rest[position + 1] / rest[position]


def ss_vae(example: Path, way: Way, images: Tensor) -> Problem:
    """The semi-supervised VAE on images without labels: a digit and its style are latent."""
    visdom = ModuleType("visdom")  # the example's plots on a web server, which nothing here uses
    visdom.Visdom = None  # type: ignore[attr-defined]
    sys.modules.setdefault("visdom", visdom)
    module = imported(example / "vae", "ss_vae_M2")
    net = module.SSVAE(hidden_layers=[500], config_enum="parallel")
    guide: Callable[..., Any] = net.guide
    if way.enumerated:
        guide = config_enumerate(guide, "parallel", expand=True)
    if way.baseline == "average":
        settings: Any = {"baseline": {"use_decaying_avg_baseline": True}}
        guide = poutine.infer_config(guide, lambda site: settings if site["name"] == "y" else {})
    train, test = images[HELD_OUT:], images[:HELD_OUT]
    return Problem(
        net.model,
        guide,
        lambda svi: svi.step(train[torch.randint(len(train), (200,))]),
        lambda call: call(net.model, guide, train[:200]),
        lambda call: call(net.model, net.guide, test) / HELD_OUT,
        list(net.encoder_y.parameters()),
        200,
    )


def imported(folder: Path, name: str) -> Any:
    """A module of an example, which imports others beside it."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    return __import__(name)


def multi_mnist_images(digits: MNIST) -> Tensor:
    """Up to two digits per image, by Pyro's own generator."""
    before = np.random.get_state()
    np.random.seed(681307)  # the example's
    source = {"digits": digits.data.numpy(), "labels": digits.targets}
    images, _ = multi_mnist.mk_dataset(IMAGES, source, 2, 50)
    np.random.set_state(before)
    return torch.from_numpy(images.astype(np.float32) / 255)


@dataclass(frozen=True)
class Example:
    """One of the two."""

    title: str
    sites: str
    make: Callable[[Path, Way, Tensor], Problem]
    images: Callable[[MNIST], Tensor]
    ways: Sequence[Way]
    rates: Sequence[float]  # of Adam; the examples' own, 0.0001 and 0.00042, are for longer runs
    seconds: float
    baseline_rate: float = 0.0


PLAIN = Way(NO_BASELINE, TraceGraph_ELBO)
EXAMPLES = {
    "air": Example(
        "AIR",
        "Three Bernoulli sites, each followed by Normal ones; `vectorize=False`; Adam at 0.001",
        air,
        multi_mnist_images,
        [PLAIN, Way(f"{NO_BASELINE}, the example's baseline nets", TraceGraph_ELBO, "nets"), *releg_ways(False)],
        (1e-3,),
        40.0,
        0.1,
    ),
    "ss_vae": Example(
        "Semi-supervised VAE, without labels",
        "A OneHotCategorical site of ten states, followed by a Normal one; Adam at the better of 0.00042 and 0.002",
        ss_vae,
        lambda digits: digits.data[:IMAGES].flatten(1) / 255,
        [
            PLAIN,
            Way(f"{NO_BASELINE}, decaying average", TraceGraph_ELBO, "average"),
            Way("`TraceEnum_ELBO`", partial(TraceEnum_ELBO, max_plate_nesting=1), enumerated=True),
            *releg_ways(True),
        ],
        (0.00042, 0.002),
        12.0,
    ),
}


# --- what is measured


Numbers = Iterator[tuple[str, Any]]  # by the label of a way


class Study:
    """One example, with its data.

    Args:
        example: which one.
        folder: of Pyro's examples.
    """

    def __init__(self, example: Example, folder: Path) -> None:
        self.example, self.folder = example, folder
        self.images = example.images(MNIST(ROOT / "data", train=True, download=True))

    def problem(self, way: Way, seed: int = 0) -> Problem:
        """The same weights for every way."""
        pyro.clear_param_store()
        pyro.set_rng_seed(seed)
        made = self.example.make(self.folder, way, self.images)
        pyro.set_rng_seed(seed + 1)
        return made

    def optimiser(self, rate: float, baseline_rate: float | None = None) -> Any:
        """Adam, with another rate for the example's baseline nets."""
        of_baselines = self.example.baseline_rate if baseline_rate is None else baseline_rate
        return Adam(lambda name: {"lr": of_baselines if "bl_" in name else rate})

    def times(self, ways: Sequence[Way]) -> Numbers:
        """Milliseconds per step, medians; all ways take turns."""
        taken: dict[str, list[float]] = {way.label: [] for way in ways}
        for _ in range(3):
            for way in ways:
                problem = self.problem(way)
                svi = SVI(problem.model, problem.guide, self.optimiser(1e-4), loss=way.loss())
                for step in range(2 + ROUNDS // 3):
                    start = time.process_time()
                    problem.step(svi)
                    if step >= 2:
                        taken[way.label].append(time.process_time() - start)
        yield from ((label, 1000 * statistics.median(values)) for label, values in taken.items())

    def variances(self, ways: Sequence[Way]) -> Numbers:
        """Of the gradient per image for the parameters of discrete sites, on one mini-batch, at the same weights.

        The weights are those after a few steps with common random numbers.
        """
        last = self.example.ways[-1]
        trained = self.problem(last)
        svi = SVI(trained.model, trained.guide, self.optimiser(self.example.rates[0]), loss=last.loss())
        for _ in range(STEPS_BEFORE):
            trained.step(svi)
        values = {name: value.detach().clone() for name, value in pyro.get_param_store().items()}
        yield from ((way.label, self._variance(way, values)) for way in ways)

    def _variance(self, way: Way, values: Mapping[str, Tensor]) -> float:
        problem, loss = self.problem(way), way.loss()
        svi = SVI(problem.model, problem.guide, self.optimiser(0.0), loss=loss)
        problem.step(svi)  # puts the modules into the store
        with torch.no_grad():
            for name, value in pyro.get_param_store().items():
                if name in values and "bl_" not in name:
                    value.copy_(values[name])
        for _ in range(STEPS_OF_BASELINES if way.baseline else 0):
            problem.step(svi)  # at rate zero all but baselines stay
        return float(torch.stack([self._gradient(problem, loss) for _ in range(DRAWS)]).var(0).sum())

    def _gradient(self, problem: Problem, loss: Any) -> Tensor:
        for parameter in problem.of_discrete:
            parameter.grad = None
        problem.fixed(loss.loss_and_grads)
        last = [p.grad for p in problem.of_discrete if p.grad is not None]
        rows = [grad[:1] for grad in last] if self.example.make is air else last
        return torch.cat([grad.flatten() for grad in rows]) / problem.batch

    def training(self, ways: Sequence[Way]) -> Numbers:
        """The bound of held-out images after the same CPU seconds, by way and rate."""
        for way in ways:
            yield way.label, [self._trained(way, rate) for rate in self.example.rates]

    def _trained(self, way: Way, rate: float) -> dict[str, float]:
        problem, steps, spent = self.problem(way), 0, 0.0
        svi = SVI(problem.model, problem.guide, self.optimiser(rate), loss=way.loss())
        while spent < self.example.seconds:
            start = time.process_time()
            problem.step(svi)
            spent, steps = spent + time.process_time() - start, steps + 1
        with torch.no_grad():
            bound = -statistics.mean(problem.held_out(Trace_ELBO().loss) for _ in range(5))
        print(f"{self.example.title}, {way.label}, rate {rate}: {bound:.2f} after {steps} steps", flush=True)
        return {"rate": rate, "steps": steps, "bound": bound}


def revision(checkout: Path) -> str:
    """The commit of a checkout."""
    command = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pyro", type=Path, help="a checkout of github.com/pyro-ppl/pyro")
    parser.add_argument("--examples", nargs="+", choices=EXAMPLES, default=list(EXAMPLES))
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder to write to; other parts are kept there")
    options = parser.parse_args()
    torch.set_num_threads(1)
    file = options.results / PYRO
    for name, part in product(options.examples, options.parts):
        study = Study(EXAMPLES[name], options.pyro / "examples")
        known = read(file)["examples"].get(name, {}).get(part, {})
        for label, numbers in getattr(study, part)([way for way in study.example.ways if way.label not in known]):
            report = read(file)  # another process may have measured another part
            made = f"{pyro.__version__}, examples of {revision(options.pyro)}"
            report["provenance"] = {**provenance(), "pyro": made}
            report["settings"] = {"steps": STEPS_BEFORE, "of_baselines": STEPS_OF_BASELINES, "held_out": HELD_OUT}
            example = report["examples"].setdefault(name, {})
            example |= {key: getattr(study.example, key) for key in ("title", "sites", "seconds")}
            example.setdefault(part, {})[label] = numbers
            write_json(file, report)
    write_pyro(options.results)


def read(file: Path) -> dict[str, Any]:
    """What has been measured."""
    found: dict[str, Any] = json.loads(file.read_bytes()) if file.is_file() else {"examples": {}}
    return found


if __name__ == "__main__":
    main()
