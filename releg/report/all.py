"""All artefacts at once. python -m releg.report.all [RESULTS] makes them again from the files that are there."""

from __future__ import annotations

import sys
from pathlib import Path

from releg.report.extended import write_extended
from releg.report.figure1 import write_figure1
from releg.report.readme import write_readme
from releg.report.table1 import write_table1
from releg.report.variance import write_variance


def write_all(results: Path) -> str:
    """Write every artefact; answers with the table to print."""
    table = write_table1(results)
    write_figure1(results)
    write_variance(results)
    extended = write_extended(results)
    write_readme(results)
    return f"{table}\n{extended}" if extended else table


if __name__ == "__main__":
    try:
        print(write_all(Path(sys.argv[1] if len(sys.argv) > 1 else "results")))
    except (OSError, ValueError) as error:
        sys.exit(f"releg.report: {error}")
