"""The three-layer VAE trained with each gradient: python -m lightning_modules.bench.library_training.

REINFORCE with a leave-one-out baseline, common random numbers, and these with eight flips per layer, from the same
weights on the same batches of binarised MNIST. Writes results/library_training.json: the validation bound against
steps and CPU seconds of one thread.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lightning_modules.binarized_mnist import BinarizedMNIST
from lightning_modules.run.provenance import provenance
from releg import bernoulli
from releg.discrete import gradient
from releg.estimators.parts.others import less_others
from releg.examples.three_layer_vae import ThreeLayerVAE
from releg.files import write_atomically

BATCH, LEARNING_RATE, VALIDATION_IMAGES = 50, 0.001, 1000
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


def train(way: str, seed: int, steps: int, every: int, data: BinarizedMNIST) -> dict[str, Any]:
    """One run: where it stood at every `every`-th step, the time of validation left out."""
    torch.manual_seed(seed)
    vae = ThreeLayerVAE()
    optimiser = torch.optim.Adam(vae.parameters(), lr=LEARNING_RATE)
    x_val = next(iter(data.eval_loader("val", VALIDATION_IMAGES)))
    loader, spent = data.train_dataloader(), 0.0
    batches = (x for _ in count() for x in loader)  # epoch after epoch
    points = [{"step": 0, "seconds": spent, "elbo": round(bound(vae, x_val), 3)}]
    for step in range(1, steps + 1):
        x = next(batches)
        start = time.process_time()
        optimiser.zero_grad()
        WAYS[way](vae, x).mean().backward()
        optimiser.step()
        spent += time.process_time() - start
        if step % every == 0:
            points.append({"step": step, "seconds": round(spent, 3), "elbo": round(bound(vae, x_val), 3)})
    return {"way": way, "seed": seed, "points": points}


def main() -> None:
    """Train and write."""
    parser = argparse.ArgumentParser(description="a three-layer VAE trained with three gradients")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--every", type=int, default=25)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--results-dir", type=Path, default=Path("results"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = BinarizedMNIST(batch_size=BATCH)
    runs = []
    for seed in range(options.seeds):
        for way in WAYS:
            runs.append(train(way, seed, options.steps, options.every, data))
            print(way, seed, runs[-1]["points"][-1], flush=True)
    report = {"provenance": provenance(), "batch": BATCH, "learning_rate": LEARNING_RATE, "runs": runs}
    write_atomically(options.results_dir / "library_training.json", json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
