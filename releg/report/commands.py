"""How the runs of a manifest were made, as commands of reproduce.sh."""

from __future__ import annotations

from releg.records.names import ARCHITECTURES, ESTIMATORS, PAPER_DATA, budget_name
from releg.report.runs import Manifest, Run

Cell = tuple[str, str]  # architecture, estimator
GRID: list[Cell] = [(architecture, estimator) for architecture in ARCHITECTURES for estimator in ESTIMATORS]


def command_words(manifest: Manifest) -> str:
    """The command that made all runs; if there were several, the last one, and those that train the same cells."""
    last = f"`{manifest.command}`" if manifest.command else ""
    if last and manifest.seconds is not None:
        return last
    words = f"several, the last one {last}" if last else "several"
    same = ", ".join(f"`{command}`" for command in commands_for(manifest.runs))
    return f"{words}; to train the same cells: {same}" if same else words


def commands_for(runs: list[Run]) -> list[str]:
    """Commands that train these cells with these seeds; none for runs that reproduce.sh has no short options for."""
    budgets = {budget_name(run.steps) for run in runs}
    seeds = _seeds(runs)
    if (
        len(budgets) != 1
        or "" in budgets
        or not seeds.keys() <= set(GRID)
        or {run.data for run in runs} != {PAPER_DATA}
    ):
        return []
    start = f"bash reproduce.sh --budget {budgets.pop()}"
    of_all = min(seeds.get(cell, 0) for cell in GRID)
    whole = [f"{start}{_option(of_all)}"] if of_all else []
    more = [(cell, seeds[cell]) for cell in GRID if seeds.get(cell, 0) > of_all]
    return whole + [f"{start} --only {','.join(cell)}{_option(count)}" for cell, count in more]


def _seeds(runs: list[Run]) -> dict[Cell, int]:
    """The number of seeds, which begin with 0, of each cell."""
    cells = dict.fromkeys((run.architecture, run.estimator) for run in runs)
    return {cell: 1 + max(run.seed for run in runs if (run.architecture, run.estimator) == cell) for cell in cells}


def _option(seeds: int) -> str:
    return f" --seeds {seeds}" if seeds > 1 else ""
