"""releg verify: evaluates the published weights on the test images and compares the bounds with Table 1's."""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from lightning_modules import RESULTS
from lightning_modules.binarized_mnist import BinarizedMNIST
from lightning_modules.command_line.console import printable
from lightning_modules.command_line.parser import Parser, at_least
from lightning_modules.grid import weights
from lightning_modules.grid.weights import Cell
from releg import bounds
from releg.files import readable
from releg.records.file_names import TABLE1, WEIGHTS
from releg.records.names import longer_folders
from releg.records.runs import Entry, read_runs
from releg.report.numbers import nats
from releg.report.page import Column, markdown
from releg.weights import load

IMAGES_AT_ONCE = 500
MOST_STANDARD_ERRORS = 4.0  # with sixteen cells, one false alarm in a thousand sets of published weights

DESCRIPTION = """Evaluates the published weights of Table 1, and of its cells that were trained for longer, on the
10,000 test images and compares the bound of each with the recorded one. A difference beyond sampling error, a damaged
file, other test images, or a table that is not the mean of its runs end in exit code 1."""


class Evaluation(NamedTuple):
    """A mean bound, and the variance of one draw of z for the same image, averaged over images."""

    elbo: float
    variance: float
    images: int
    samples: int

    def standard_error(self, says: dict[str, str]) -> float:
        """That of the difference from the bound that the file says, a mean over other draws for each image."""
        return math.sqrt(self.variance / self.images * (1 / self.samples + 1 / int(says["test_samples"])))


class InTable(NamedTuple):
    """A cell of Table 1: its bound, a mean over seeds, and its runs in the runs.json of the same folder."""

    bound: float
    runs: list[Entry]


class Verdict(NamedTuple):
    """What was found for one cell; no problem means that it holds."""

    cell: Cell
    tabulated: InTable | None
    problem: str
    says: dict[str, str]  # what the file says of itself; nothing if it could not be evaluated
    found: Evaluation | None = None


def build_parser() -> Parser:
    """The parser of releg verify."""
    parser = Parser("releg verify", DESCRIPTION)
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="DIR", help="folder that holds weights/")
    draws = "draws of z per image; default: 10"
    parser.add_argument("--samples", type=at_least(2), default=10, metavar="S", help=draws)
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="folder with the data; default: the repository's")
    return parser


def main(argv: list[str]) -> int:
    """Check every published cell; returns 0 if all hold, 1 if one does not."""
    options = build_parser().parse_args(argv)
    verdicts = verify(options.results, options.samples, BinarizedMNIST(options.data_dir))
    print(printable(table(verdicts)))
    wrong = [verdict for verdict in verdicts if verdict.problem]
    for verdict in wrong:
        print(printable(f"releg verify: {verdict.cell}: {verdict.problem}"), file=sys.stderr)
    if not wrong:
        found = f"all {len(verdicts)} cells verified: each bound matches the recorded one within sampling error"
        print(found, file=sys.stderr)
    return 1 if wrong else 0


def verify(results: Path, samples: int, data: BinarizedMNIST) -> list[Verdict]:
    """A verdict on every published cell."""
    cells = list(weights.published(results))
    if not cells:
        raise ValueError(f"there are no weights in {results / WEIGHTS}, expected the published ones; restore them")
    table = _tabulated(results)
    x = torch.from_numpy(data.images("test")).float()
    verdicts = []
    for cell in dict.fromkeys([*cells, *table]):
        print(f"evaluating {cell} ...", file=sys.stderr, flush=True)
        verdicts.append(_judge(cell, x, samples, data.checksum, table.get(cell)))
    return verdicts


def _tabulated(results: Path) -> dict[Cell, InTable]:
    """The published table and those of longer budgets, by the cell whose weights have to be there."""
    cells = {}
    for folder in (results, *longer_folders(results)):
        if folder != results and not any((folder / name).exists() for name in (TABLE1, WEIGHTS)):
            continue
        with readable(folder / TABLE1, "the table that the weights belong to", "restore it with git"):
            table = json.loads((folder / TABLE1).read_bytes())
            rows = [(row["architecture"], row["estimator"], float(row["test_nll_mean"])) for row in table]
        runs = read_runs(folder)
        for *place, bound in rows:
            own = [run for run in runs if run.cell == tuple(place)]
            cells[weights.cell_at(folder, *place)] = InTable(bound, own)
    return cells


def _judge(cell: Cell, x: torch.Tensor, samples: int, checksum: str, tabulated: InTable | None) -> Verdict:
    try:
        says = weights.read_description(cell)
        found = evaluate(cell.path, x, samples)
        return Verdict(cell, tabulated, next(_problems(cell, says, found, checksum, tabulated), ""), says, found)
    except (ValueError, OSError, LookupError, ArithmeticError) as error:
        return Verdict(cell, tabulated, str(error), {})


def _problems(
    cell: Cell, says: dict[str, str], found: Evaluation, checksum: str, tabulated: InTable | None
) -> Iterator[str]:
    """What is wrong with a cell whose file could be evaluated."""
    if (says["architecture"], says["estimator"]) != (cell.architecture, cell.estimator):
        yield f"the file is of SBN({says['architecture']}) {says['estimator']}, expected what its name says"
    if says["data_sha256"] != checksum:
        yield f"trained on data with SHA-256 {says['data_sha256']}, expected {checksum}, that of the data here"
    recorded = float(says["test/elbo"])
    apart = abs(found.elbo - recorded) / found.standard_error(says)
    if not apart <= MOST_STANDARD_ERRORS:
        yield f"the bound is {-found.elbo:.3f}, expected {-recorded:.3f}: {apart:.1f} standard errors apart"
    if tabulated is None:
        yield "the table has no such cell; delete the file, or restore table and weights with git"
        return
    mean = -statistics.fmean(run.result["test/elbo"] for run in tabulated.runs) if tabulated.runs else math.nan
    if not abs(tabulated.bound - mean) <= 1e-6:
        yield f"the table says {tabulated.bound:.3f}, expected {mean:.3f}, the mean of its runs"
    if not any(weights.is_of(run, cell, says) for run in tabulated.runs):
        yield "the file is of none of the runs in runs.json, expected one of them; restore both with git"


def evaluate(path: Path, x: torch.Tensor, samples: int, seed: int = 0) -> Evaluation:
    """The bound of a model on all images, with fresh draws of z."""
    model = load(path)
    generator = torch.Generator().manual_seed(seed)
    parts = [bounds.log_weights(model, part, samples, generator) for part in x.split(IMAGES_AT_ONCE)]
    weights = torch.cat(parts).double()  # (images, samples)
    return Evaluation(weights.mean().item(), weights.var(1).mean().item(), *weights.shape)


def table(verdicts: Sequence[Verdict]) -> str:
    """The table of verdicts, with a row per cell."""
    columns: list[Column[Verdict]] = [
        Column("SBN", lambda verdict: verdict.cell.architecture, is_text=True),
        Column("estimator", lambda verdict: verdict.cell.estimator.upper(), is_text=True),
        Column("verdict", lambda verdict: "fails" if verdict.problem else "holds", is_text=True),
        Column("steps", lambda verdict: f"{int(verdict.says['steps']):,}" if verdict.says else None),
        Column("seed", lambda verdict: verdict.says.get("seed")),
        Column("recorded", lambda verdict: nats(-float(verdict.says["test/elbo"])) if verdict.says else None),
        Column("found", lambda verdict: nats(-verdict.found.elbo) if verdict.found else None),
        Column(
            "± of their difference",
            lambda verdict: f"{verdict.found.standard_error(verdict.says):.3f}" if verdict.found else None,
        ),
        Column("Table 1, mean", lambda verdict: nats(verdict.tabulated.bound) if verdict.tabulated else None),
    ]
    return markdown(columns, verdicts)
