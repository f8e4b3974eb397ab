"""All artefacts at once. python -m releg.report.all [RESULTS] remakes them from the files in the folder."""

from __future__ import annotations

import sys
from pathlib import Path

from releg.naming.file_names import BENCH, COMPARE
from releg.report.bench import write_bench
from releg.report.compare import write_compare
from releg.report.extended import write_extended
from releg.report.figure1 import write_figure1
from releg.report.protocol import write_protocol
from releg.report.readme import write_readme
from releg.report.recipe import write_recipe
from releg.report.table1 import write_table1
from releg.report.variance import write_variance


def write_all(results: Path) -> str:
    """Write every artefact of reproduce.sh; return the tables to print."""
    table = write_table1(results)
    write_figure1(results)
    write_variance(results)
    extended = write_extended(results)
    write_recipe(results)
    write_protocol(results)
    write_readme(results)
    return f"{table}\n{extended}" if extended else table


def write_pages_of_commands(results: Path) -> None:
    """Write the pages of releg bench and releg compare whose numbers are in the folder."""
    if (results / BENCH).is_file():
        write_bench(results)
    if (results / COMPARE).is_file():
        write_compare(results)


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "results")
    try:
        print(write_all(folder))
        write_pages_of_commands(folder)
    except (OSError, ValueError) as error:
        sys.exit(f"releg.report: {error}")
