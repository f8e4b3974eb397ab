"""The three-layer VAE trained with each gradient: python -m lightning_modules.studies.library_training.

REINFORCE with a leave-one-out baseline, common random numbers, and the same with eight flips per layer, from the same
weights on the same batches of binarised MNIST, with the same Adam. Each takes the same number of steps with every
learning rate. At the rate that is best for REINFORCE, the cheaper ones then go on until each has had the seconds of the
slowest. Writes results/library_training.json: the validation bound against steps and CPU seconds of one thread.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lightning_modules.binarized_mnist import BinarizedMNIST
from lightning_modules.run.provenance import provenance
from releg import bernoulli
from releg.discrete import gradient
from releg.estimators.parts.other_paths import less_others
from releg.examples.three_layer_vae import ThreeLayerVAE
from releg.files import write_json
from releg.records.file_names import LIBRARY_TRAINING

BATCH, VALIDATION_IMAGES = 50, 1000
RATES = (0.001, 0.003, 0.01)
LATER = 20  # after the first steps, the points are this many times as far apart
Surrogate = Callable[[ThreeLayerVAE, Tensor], Tensor]


def reinforce(vae: ThreeLayerVAE, x: Tensor, samples: int = 2) -> Tensor:
    """The surrogate of REINFORCE with a leave-one-out baseline, (N,)."""
    rows = x.repeat_interleave(samples, dim=0)
    sample = vae.model.sample(rows, vae.model.draw_noise(rows))
    f = vae.elbo(rows, sample.z)
    log_q = torch.stack([bernoulli.log_prob(a, sample.z[name]).sum(1) for name, a in sample.logits.items()]).sum(0)
    left = less_others(f.detach().view(-1, samples)).flatten()
    return -(f + left * log_q).view(-1, samples).mean(1)


WAYS: dict[str, Surrogate] = {
    "reinforce": reinforce,
    "flips": lambda vae, x: gradient(vae.model, vae.elbo, x, flips=8).surrogate,
    "all": lambda vae, x: gradient(vae.model, vae.elbo, x).surrogate,
}


@torch.no_grad()
def bound(vae: ThreeLayerVAE, x: Tensor) -> float:
    """The mean validation bound, one sample of z per image."""
    generator = torch.Generator().manual_seed(1)
    return float(vae.elbo(x, vae.model.sample(x, vae.model.draw_noise(x, generator)).z).mean())


@dataclass(frozen=True)
class Plan:
    """What all runs have in common."""

    data: BinarizedMNIST
    steps: int
    every: int
    seed: int

    def train(self, way: str, rate: float, seconds: float = 0.0) -> dict[str, Any]:
        """One run of `steps` steps, or more until it has taken that many seconds, the time of validation left out."""
        torch.manual_seed(self.seed)
        vae = ThreeLayerVAE(self.data.mean)
        optimiser = torch.optim.Adam(vae.parameters(), lr=rate)
        x_val = next(iter(self.data.eval_loader("val", VALIDATION_IMAGES)))
        loader, spent, step = self.data.train_dataloader(), 0.0, 0
        batches = (x for _ in count() for x in loader)  # epoch after epoch
        points = [{"step": 0, "seconds": 0.0, "elbo": round(bound(vae, x_val), 3)}]
        while step < self.steps or spent < seconds:
            x, step = next(batches), step + 1
            start = time.process_time()
            optimiser.zero_grad()
            WAYS[way](vae, x).mean().backward()
            optimiser.step()
            spent += time.process_time() - start
            if step % (self.every if step <= self.steps else LATER * self.every) == 0:
                points.append({"step": step, "seconds": round(spent, 3), "elbo": round(bound(vae, x_val), 3)})
        print(way, rate, points[-1], flush=True)
        return {"way": way, "rate": rate, "seed": self.seed, "points": points}

    def runs(self) -> tuple[float, list[dict[str, Any]]]:
        """The rate that REINFORCE does best with, and all runs."""
        runs = [self.train(way, rate) for rate in RATES for way in WAYS]
        best = max((run for run in runs if run["way"] == "reinforce"), key=lambda run: run["points"][-1]["elbo"])
        at_best = [run for run in runs if run["rate"] == best["rate"]]
        seconds = max(run["points"][-1]["seconds"] for run in at_best)
        for run in at_best:
            if run["points"][-1]["seconds"] < seconds:
                run["points"] = self.train(run["way"], best["rate"], seconds)["points"]
        return best["rate"], runs


def main() -> None:
    """Train and write."""
    parser = argparse.ArgumentParser(description="a three-layer VAE trained with three gradients")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--every", type=int, default=25)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results-dir", type=Path, default=Path("results"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    rate, runs = Plan(BinarizedMNIST(batch_size=BATCH), options.steps, options.every, options.seed).runs()
    report = {"provenance": provenance(), "batch": BATCH, "steps": options.steps, "rate": rate, "runs": runs}
    write_json(options.results_dir / LIBRARY_TRAINING, report)


if __name__ == "__main__":
    main()
