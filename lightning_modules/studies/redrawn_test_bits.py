"""python -m lightning_modules.studies.redrawn_test_bits: how much of a bound is the draw of the test bits.

The bits of the test images were drawn once. This evaluates the published weights on further draws of them and writes
test_bits.json to the results folder. It takes some minutes.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

from lightning_modules import RESULTS
from lightning_modules.binarized_mnist import BinarizedMNIST
from lightning_modules.command_line.verify import evaluate
from lightning_modules.data_parts.archives import read_pixels
from lightning_modules.data_parts.bits import redraw
from lightning_modules.grid.weights import Cell, published, read_description
from lightning_modules.run.provenance import provenance, without_command
from lightning_modules.studies.study import options_of
from releg.files import write_json
from releg.records.file_names import TEST_BITS
from releg.seeds import seed_for

DRAWS, SAMPLES = 10, 5  # of the bits; of z per image: some percent of the variance over draws is theirs


def main(arguments: list[str] | None = None) -> int:
    """Evaluate every published cell on every draw."""
    results: Path = options_of(__doc__, arguments, RESULTS).results
    data = BinarizedMNIST()
    pixels = read_pixels(data.dataset, data.data_dir)[-data.counts.test :]
    draws = [redraw(pixels, seed_for(0, "test bits", number)) for number in range(DRAWS)]
    cells = [_evaluated(cell, [torch.from_numpy(bits).float() for bits in draws]) for cell in published(results)]
    write_json(results / TEST_BITS, {"samples": SAMPLES, "cells": cells, **without_command(provenance())})
    return 0


def _evaluated(cell: Cell, draws: list[torch.Tensor]) -> dict[str, Any]:
    print(f"evaluating {cell} on {len(draws)} draws of the test bits ...", file=sys.stderr, flush=True)
    says = read_description(cell)
    about = {name: says[name] for name in ("architecture", "estimator", "steps", "seed")}
    bounds = [-evaluate(cell.path, x, SAMPLES, seed).elbo for seed, x in enumerate(draws)]
    return {**about, "frozen": -float(says["test/elbo"]), "bounds": bounds}


if __name__ == "__main__":
    sys.exit(main())
