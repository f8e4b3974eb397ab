"""python -m releg.report [RESULTS]: write all pages again from the numbers; print the tables of the first page."""

from __future__ import annotations

import sys
from pathlib import Path

from releg.records.names import BUDGETS, PUBLISHED_BUDGET
from releg.report.every_page import write_every_page
from releg.report.table1 import short_table


def main(results: Path) -> None:
    """The folder and those of other budgets in it; the published table shows the rows of longer budgets."""
    for folder in (*(results / budget for budget in BUDGETS if budget != PUBLISHED_BUDGET), results):
        if folder.is_dir():
            write_every_page(folder)
    print(short_table(results), end="")


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1] if len(sys.argv) > 1 else "results"))
    except (OSError, ValueError) as error:
        sys.exit(f"releg.report: {error}")
