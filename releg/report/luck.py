"""How far apart bounds can be by luck: that of the seeds, and that of the test bits, if the paper's are compared."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable
from pathlib import Path

from releg.records.file_names import RUNS, TEST_BITS
from releg.records.names import label_of
from releg.report.artefacts import readable
from releg.report.runs import Row, Run, longer_folders, read_manifest
from releg.report.tables import listed

STANDARD_ERRORS = 2.0  # a difference up to this many can be luck


def pooled_variance(deviations: Iterable[float | None]) -> float:
    """The variance of one run over seeds, from the standard deviations of cells; zero if no cell has several seeds."""
    known = [deviation for deviation in deviations if deviation is not None]
    return statistics.fmean(deviation**2 for deviation in known) if known else 0.0


def variance_over_seeds(rows: list[Row]) -> float:
    """That of the test bounds of a table."""
    return pooled_variance(row["test_nll_sd"] for row in rows)


def by_luck(variance: float, *seeds: int) -> float:
    """How far apart two means over so many seeds can be, on the same bits."""
    return STANDARD_ERRORS * math.sqrt(variance * sum(1 / count for count in seeds))


def luck_words(results: Path, rows: list[Row]) -> str:
    """How far apart bounds are by the luck of the test bits and of the seeds, and which differences are no more.

    Empty if the bits were not measured for models of today.
    """
    if not (results / TEST_BITS).is_file():
        return ""
    command = "python -m lightning_modules.studies.other_test_bits"
    with readable(results / TEST_BITS, f"what {command} writes", "run it again"):
        cells = json.loads((results / TEST_BITS).read_bytes())["cells"]
        models = _bounds_of_best_runs(results)
        cells = [cell for cell in cells if cell["frozen"] in models]
        spreads = [statistics.stdev(cell["bounds"]) for cell in cells]
        shifts = [statistics.fmean(cell["bounds"]) - cell["frozen"] for cell in cells]
    if not cells:
        return ""
    which = "the published models" if len(cells) == len(models) else f"{len(cells)} of the {len(models)} models"
    return (
        f"The test bits were drawn once, and the paper's are not published. On {len(cells[0]['bounds'])} other draws, "
        f"the bounds of {which} have a standard deviation of {min(spreads):.2f} to {max(spreads):.2f} "
        f"nats, and their means differ from the bounds on ours by {min(shifts):+.2f} to {max(shifts):+.2f}. "
        f"{_no_more_than_luck(rows, max(spreads))} Models are compared on the same bits."
    )


def _no_more_than_luck(rows: list[Row], spread: float) -> str:
    """How far one run of the paper, on bits of its own, can be from ours by luck; and who is within that."""
    variance = variance_over_seeds(rows)
    fewest = min((len(row["seeds"]) for row in rows), default=1)
    apart = math.ceil(10 * math.hypot(by_luck(variance, fewest, 1), by_luck(spread**2, 1, 1))) / 10
    moved = f"Seeds move them by {math.sqrt(variance):.2f} (standard deviation over the seeds of a cell). "
    within = [row for row in rows if row["difference"] is not None and abs(row["difference"]) < apart]
    names = listed([f"{label_of(row['estimator'])} with {row['architecture']}" for row in within])
    who = f": here, those of {names}" if within else ""
    return f"{moved if variance else ''}So a difference to the paper of less than {apart:.1f} nats can be luck{who}."


def _bounds_of_best_runs(results: Path) -> set[float]:
    """The test bounds of the runs with the best validation bound of each cell, here and of longer budgets."""
    best: dict[tuple[Path, str, str], Run] = {}
    for folder in (results, *longer_folders(results)):
        for run in read_manifest(folder).runs if (folder / RUNS).is_file() else []:
            other = best.setdefault((folder, run.net, run.estimator), run)
            if run.result["val/elbo"] > other.result["val/elbo"]:
                best[folder, run.net, run.estimator] = run
    return {-run.result["test/elbo"] for run in best.values()}
