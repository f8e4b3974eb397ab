"""The table of reports: a new one is a file in this folder and an entry here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from releg.records.file_names import BENCH, COMPARE
from releg.records.names import FIGURE1_ARCHITECTURE
from releg.report.bench import write_bench
from releg.report.compare import write_compare
from releg.report.extended import write_extended
from releg.report.figure1 import write_figure1
from releg.report.protocol import write_protocol
from releg.report.recipe import write_recipe
from releg.report.table1 import write_table1
from releg.report.variance import write_variance


class Report(NamedTuple):
    """The function that writes a report, and what results/README.md says about its files."""

    write: Callable[[Path], str | list[Path]]  # into results/; returns the text to print, or the files it wrote
    files: Mapping[str, str]  # the main one first
    numbers: str = ""  # what another command writes for it; empty if it belongs to reproduce.sh


# In the order of results/README.md; one that reads what another one writes comes after it
REPORTS = (
    Report(
        write_table1,
        {"table1.md": "Table 1, ours next to the paper's; also as `.csv`, `.json` and `.tex`. From `runs.json`"},
    ),
    Report(
        write_figure1,
        {
            "figure1.png": f"Figure 1 of SBN({FIGURE1_ARCHITECTURE}); also as `.pdf`. From `figure1.csv`",
            "figure1.csv": "the numbers behind Figure 1, from the runs' `metrics.csv` and `grad_variance.csv`, and "
            "from `variance/`, if it is there: `releg variance` wrote those at the end of training",
        },
    ),
    Report(
        write_recipe,
        {
            "recipe.md": "trials of the budgets' warm-up and learning rate, and of others. From `recipe/trials.json`, "
            "which `python -m lightning_modules.studies.recipe` writes"
        },
    ),
    Report(
        write_protocol,
        {
            "protocol.md": "four estimators under the protocol of the RODEO paper, with `protocol.png`. From "
            "`protocol/curves.json`, which `python -m lightning_modules.studies.protocol` writes"
        },
    ),
    Report(
        write_extended,
        {
            "extended.md": "every shipped estimator on one architecture (`--extended`); also as `.csv` and `.json`. "
            "From `extended_runs.json`",
            "race.md": "the race: the minutes that every estimator trains until given bounds (`--extended`); also as "
            "`.json` and `.png`. From `race.csv`",
            "race.csv": "the validation bounds and clocks behind the race, from the runs' `metrics.csv`",
            "extended_runs.json": "the runs behind `extended.md`, like `runs.json`",
        },
    ),
    Report(
        write_compare,
        {
            "compare.md": "every estimator at the same weights: variance, bias, cost; also as `.csv`, `.json` and "
            "`.png`. Written by `releg compare`; the page says how"
        },
        COMPARE,
    ),
    Report(
        write_bench,
        {
            "bench.md": "time and memory of a training step; also as `.json` and `.png`. Written by `releg bench`; the "
            "page says how",
            "bench_studies.json": "the other numbers of `bench.md`: growth with units and depth, overhead of the "
            "Trainer",
        },
        BENCH,
    ),
    Report(
        write_variance,
        {"variance.md": "gradient variances of LR and CRN per layer, at the same weights. From `figure1.csv`"},
    ),
)
