"""releg verify: evaluates the published weights on the test images and compares the bounds with Table 1's."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from lightning_modules import RESULTS
from lightning_modules.binarized_mnist import BinarizedMNIST
from lightning_modules.commands.options import Parser
from lightning_modules.grid import published_weights
from lightning_modules.grid.options import at_least
from lightning_modules.grid.published_weights import Cell
from releg import bounds
from releg.naming.file_names import WEIGHTS
from releg.report import tables
from releg.report.table1 import Paper, read_paper
from releg.weights import load

IMAGES_AT_ONCE = 500
MOST_STANDARD_ERRORS = 4.0  # with sixteen cells, one false alarm in a thousand runs of the command

DESCRIPTION = """Evaluates the published weights of Table 1, and of its cells that were trained for longer, on the
10,000 test images and compares the bound of each with the recorded one. A difference beyond sampling error, a damaged
file or other test images end in exit code 1."""


class Evaluation(NamedTuple):
    """A mean bound, and the variance of one draw of z for the same image, averaged over images."""

    elbo: float
    variance: float
    images: int
    samples: int

    def standard_error(self, recorded_samples: int) -> float:
        """Of the difference from a mean over the same images with `recorded_samples` other draws each."""
        return math.sqrt(self.variance / self.images * (1 / self.samples + 1 / recorded_samples))


class Verdict(NamedTuple):
    """What was found for one cell; no problem means that it holds."""

    cell: Cell
    steps: int | None  # of training
    recorded: float | None  # negative bounds, as tables print them
    found: float | None
    standard_error: float | None
    problem: str


def build_parser() -> Parser:
    """All options."""
    parser = Parser("releg verify", DESCRIPTION)
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="DIR", help="folder that holds weights/")
    parser.add_argument(
        "--samples", type=at_least(2), default=10, metavar="S", help="draws of z per image; default: 10"
    )
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="folder with the data; default: the repository's")
    return parser


def main(argv: list[str]) -> int:
    """Check every published cell; returns 0 if all hold, 1 if one does not."""
    options = build_parser().parse_args(argv)
    verdicts = verify(options.results, options.samples, BinarizedMNIST(options.data_dir))
    print(table(verdicts, read_paper(options.results)))
    wrong = [verdict for verdict in verdicts if verdict.problem]
    for verdict in wrong:
        print(f"releg verify: {verdict.cell}: {verdict.problem}", file=sys.stderr)
    if not wrong:
        print(
            f"all {len(verdicts)} cells verified: each bound matches the recorded one within sampling error",
            file=sys.stderr,
        )
    return 1 if wrong else 0


def verify(results: Path, samples: int, data: BinarizedMNIST) -> list[Verdict]:
    """A verdict on every published cell."""
    cells = list(published_weights.published(results))
    if not cells:
        raise ValueError(
            f"there are no weights in {results / WEIGHTS}, expected <architecture>/<lr|crn>"
            ".safetensors; `bash reproduce.sh --budget standard` trains and keeps them"
        )
    x = torch.from_numpy(data.images("test")).float()
    verdicts = []
    for cell in cells:
        print(f"evaluating {cell} ...", file=sys.stderr, flush=True)
        verdicts.append(_judge(cell, x, samples, data.checksum))
    return verdicts


def _judge(cell: Cell, x: torch.Tensor, samples: int, checksum: str) -> Verdict:
    try:
        says = published_weights.read_description(cell)
        found = evaluate(cell.path, x, samples)
    except (ValueError, OSError) as error:
        return Verdict(cell, None, None, None, None, str(error))
    recorded = float(says["test/elbo"])
    apart, scale = abs(found.elbo - recorded), found.standard_error(int(says["test_samples"]))
    problem = ""
    if (says["architecture"], says["estimator"]) != (cell.architecture, cell.estimator):
        problem = f"the file is of SBN({says['architecture']}) {says['estimator']}, expected what its name says"
    elif says["data_sha256"] != checksum:
        problem = f"trained on data with SHA-256 {says['data_sha256']}, expected {checksum}, that of the data here"
    elif not apart <= MOST_STANDARD_ERRORS * scale:
        problem = f"the bound is {-found.elbo:.3f}, expected {-recorded:.3f}: {apart / scale:.1f} standard errors apart"
    return Verdict(cell, int(says["steps"]), -recorded, -found.elbo, scale, problem)


def evaluate(path: Path, x: torch.Tensor, samples: int) -> Evaluation:
    """The bound of a model on all images, with fresh draws of z."""
    model = load(path)
    generator = torch.Generator().manual_seed(0)
    parts = [bounds.log_weights(model, part, samples, generator) for part in x.split(IMAGES_AT_ONCE)]
    weights = torch.cat(parts).double()  # (images, samples)
    return Evaluation(weights.mean().item(), weights.var(1).mean().item(), *weights.shape)


def table(verdicts: Sequence[Verdict], paper: Paper) -> str:
    """One row per cell."""
    rows = []
    for verdict in verdicts:
        cell, bounds_found = verdict.cell, (verdict.recorded, verdict.found)
        shown = ["" if verdict.steps is None else f"{verdict.steps:,}"]
        shown += ["" if number is None else f"{number:.2f}" for number in bounds_found]
        shown.append("" if verdict.standard_error is None else f"{verdict.standard_error:.3f}")
        published = paper.get(cell.architecture, {}).get(cell.estimator)
        mark = "differs" if verdict.problem else "holds"
        paper_says = "" if published is None else f"{published:.2f}"
        rows.append([cell.architecture, cell.estimator.upper(), mark, *shown, paper_says])
    head = ["SBN", "estimator", "", "steps", "recorded", "found", "standard error", "paper"]
    return "\n".join(tables.table(head, rows, texts=3))
