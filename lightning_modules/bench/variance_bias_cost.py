"""What releg compare measures: variance, bias and cost of estimators at the same weights and images."""

from __future__ import annotations

import random
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import Tensor

from lightning_modules.bench.rounds import milliseconds, play_round, ratio
from lightning_modules.bench.steps import CONFIGS, OurSteps, Problem
from lightning_modules.command_line.console import progress_bar
from lightning_modules.shipped_estimators import read_estimator
from releg.estimators.base import Estimator
from releg.measure.bias import compare, reference_moments
from releg.measure.fitting import prepare
from releg.sbn import SigmoidBeliefNet

ROUNDS, STEPS = 8, 5  # of the timing, in turns with a step of LR
BATCH_SIZE, BATCHES = 100, 6
REFERENCE_FACTOR = 10  # estimates in the long average for each one of an estimator

Row = dict[str, Any]


def measured_rows(options: Namespace, model: SigmoidBeliefNet, own: Estimator | None, images: Tensor) -> Iterator[Row]:
    """All figures of each estimator.

    Args:
        options: the command's: which estimators, how many images, samples and steps of baselines, and the seed.
        model: the weights.
        own: the estimator that they were trained with, whose baselines are used where settings agree.
        images: (I, data_size); the first ones are measured on, the others train baselines as well.
    """
    seed, samples, chosen = options.seed, options.samples_per_image, images[: options.num_images]
    with progress_bar("long average of common random numbers", len(chosen), " images") as bar:
        reference = reference_moments(model, chosen, REFERENCE_FACTOR * samples, seed, bar.update)
    for file in options.estimators:
        started, name = time.monotonic(), Path(file).stem
        (estimator,) = prepare({name: read_estimator(file)}, own, model, images, options.baseline_steps, seed).values()
        with progress_bar(name, len(chosen), " images") as bar:
            found = compare(estimator, model, chosen, samples, reference, seed, bar.update)
        yield {
            "estimator": name,
            "label": estimator.label,
            "unbiased": estimator.unbiased,
            "objective": estimator.objective,
            "evaluations": estimator.evaluations(model),
            "samples": estimator.samples,
            "architecture": model.architecture,
            **cost(file, model, images, seed),
            **found,
            "num_images": options.num_images,
            "samples_per_image": samples,
            "seconds": round(time.monotonic() - started, 1),
        }


def cost(name: str, model: SigmoidBeliefNet, images: Tensor, seed: int) -> Row:
    """Milliseconds of a training step, and those of LR in the same rounds."""
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    batches = [batch.to(model.mean) for batch in images.split(BATCH_SIZE)[:BATCHES]]
    problem, order = Problem(tuple(model.layers), weights, batches, seed), random.Random(seed)
    steps = {kind: OurSteps(config, problem, compiled=False) for kind, config in (("lr", CONFIGS["lr"]), ("own", name))}
    rounds = [play_round(steps, STEPS, order, problem.device) for _ in range(ROUNDS)]
    return {
        "ms_per_step": milliseconds(rounds, "own")[0],
        "lr_ms_per_step": milliseconds(rounds, "lr")[0],
        "ratio_to_lr": ratio(rounds, "own", "lr")[0],
    }
