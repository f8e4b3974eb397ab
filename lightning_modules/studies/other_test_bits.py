"""python -m lightning_modules.studies.other_test_bits: how much of a bound is the luck of the test bits.

The bits of the test images were drawn once. This evaluates the published weights on further draws of them, and writes
results/test_bits.json, from which Table 1 says how far two draws are apart. It takes some minutes.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import torch

from lightning_modules import RESULTS
from lightning_modules.binarized_mnist import BinarizedMNIST
from lightning_modules.command_line.verify import evaluate
from lightning_modules.data_parts.archives import read_pixels
from lightning_modules.data_parts.bits import redraw
from lightning_modules.grid.options import at_least
from lightning_modules.grid.published_weights import Cell, published, read_description
from lightning_modules.run.provenance import provenance, without_command
from releg.files import write_json
from releg.records.file_names import TEST_BITS, WEIGHTS
from releg.seeds import seed_for

SAMPLES = 5  # of z per image: some percent of the variance over draws is theirs


def main(arguments: list[str] | None = None) -> int:
    """Evaluate every published cell on every draw."""
    parser = argparse.ArgumentParser("python -m lightning_modules.studies.other_test_bits", description=__doc__)
    parser.add_argument("--draws", type=at_least(2), default=10, help="of the test bits; default: 10")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder that holds weights/; default: results")
    options = parser.parse_args(arguments)
    made = without_command(provenance())
    data = BinarizedMNIST()
    pixels = read_pixels(data.dataset, data.data_dir)[-data.counts.test :]
    draws = [redraw(pixels, seed_for(0, "test bits", number)) for number in range(options.draws)]
    images = [torch.from_numpy(bits).float() for bits in draws]
    cells = list(published(options.results))
    if not cells:
        parser.error(f"there are no weights in {options.results / WEIGHTS}, expected those of `releg verify`")
    try:
        entries = [_entry(cell, images) for cell in cells]
        write_json(options.results / TEST_BITS, {"samples": SAMPLES, "cells": entries, **made})
    except (OSError, ValueError) as error:
        parser.error(str(error))
    print(f"written to {options.results / TEST_BITS}", file=sys.stderr)
    return 0


def _entry(cell: Cell, draws: list[torch.Tensor]) -> dict[str, Any]:
    print(f"evaluating {cell} on {len(draws)} draws of the test bits ...", file=sys.stderr, flush=True)
    says = read_description(cell)
    return {
        **{name: says[name] for name in ("architecture", "estimator", "steps", "seed")},
        "frozen": -float(says["test/elbo"]),
        "bounds": [-evaluate(cell.path, x, SAMPLES, seed).elbo for seed, x in enumerate(draws)],
    }


if __name__ == "__main__":
    sys.exit(main())
