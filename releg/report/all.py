"""All reports at once. python -m releg.report.all [RESULTS] remakes them from the files in the folder."""

from __future__ import annotations

import sys
from pathlib import Path

from releg.report.readme import write_readme
from releg.report.writers import REPORTS


def write_all(results: Path) -> str:
    """Write every report of reproduce.sh; return the tables to print."""
    made = [report.write(results) for report in REPORTS if not report.numbers]
    write_readme(results)
    return "\n".join(text for text in made if isinstance(text, str) and text)


def write_pages_of_commands(results: Path) -> None:
    """Write the reports of other commands whose numbers are in the folder."""
    for report in REPORTS:
        if report.numbers and (results / report.numbers).is_file():
            report.write(results)


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "results")
    try:
        print(write_all(folder))
        write_pages_of_commands(folder)
    except (OSError, ValueError) as error:
        sys.exit(f"releg.report: {error}")
