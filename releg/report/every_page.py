"""The pages about a folder of results; a new page is a file in this folder and a line here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from releg.records.file_names import BENCH, COMPARE, LIBRARY, PROTOCOL_CURVES, PYRO, RACE, RUNS, TRIALS
from releg.report.bench import write_bench
from releg.report.compare import write_compare
from releg.report.figure1 import write_figure1
from releg.report.library import write_library
from releg.report.pyro import write_pyro
from releg.report.race import write_race
from releg.report.recipe import write_recipe
from releg.report.records import write_records
from releg.report.table1 import write_table1
from releg.report.variance import write_variance

# The file with the numbers of a page, and what writes the page
PAGES: Sequence[tuple[str, Callable[[Path], object]]] = (
    (RUNS, write_table1),
    (RUNS, write_figure1),
    (RUNS, write_variance),
    (RUNS, write_records),
    (RACE, write_race),
    (TRIALS, write_recipe),
    (PROTOCOL_CURVES, write_race),
    (COMPARE, write_compare),
    (BENCH, write_bench),
    (LIBRARY, write_library),
    (PYRO, write_pyro),
)


def write_every_page(results: Path) -> None:
    """Write every page whose numbers are in the folder."""
    for numbers, write in PAGES:
        if (results / numbers).is_file():
            write(results)
