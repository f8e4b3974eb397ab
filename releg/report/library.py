"""What the library's gradients cost and reach, on releg/README.md: python -m releg.report.library [RESULTS].

Reads library_times.json and library_training.json, writes library.png and the table between the page's two marks.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from releg.files import write_atomically
from releg.report.names import ESTIMATORS
from releg.report.style import as_bytes, in_style
from releg.report.tables import table

PAGE = Path(__file__).parents[1] / "README.md"
BEGIN, END = "<!-- python -m releg.report.library -->\n", "<!-- end -->\n"
HEAD = ["units", "REINFORCE, 2 samples", "CRN, 8 flips per layer", "CRN, all flips", "before", "before / all flips"]
STYLES: dict[str, Any] = {
    "reinforce": {"label": "REINFORCE, leave-one-out", "color": ESTIMATORS["lr"].colour},
    "flips": {"label": "CRN, 8 flips per layer", "color": ESTIMATORS["crn"].colour, "linestyle": "--"},
    "all": {"label": "CRN, all flips", "color": ESTIMATORS["crn"].colour},
}
LOWEST = -230  # nats: below, all curves are one

Row = Mapping[str, Any]


def write_library(results: Path, page: Path = PAGE) -> None:
    """Write the table of the page, and the figure if its numbers are there."""
    if (results / "library_training.json").is_file():
        runs = json.loads((results / "library_training.json").read_bytes())["runs"]
        write_atomically(results / "library.png", as_bytes(draw(runs)))
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    write_atomically(page, f"{before}{BEGIN}{times_table(results)}{END}{after}")


def times_table(results: Path) -> str:
    """Milliseconds per gradient by number of units."""
    report = json.loads((results / "library_times.json").read_bytes())
    lines = table(HEAD, [_cells(row) for row in report["rows"]])
    bounds = report["rows"][0]["memory_mib"]
    peaks = {bound: max(row["memory_mib"][bound] for row in report["rows"]) for bound in bounds}
    memory = ", ".join(f"{peak:g} MiB under a bound of {bound}" for bound, peak in peaks.items())
    return "\n".join(
        [
            *lines,
            "",
            f"CPU milliseconds per gradient with its backward pass, 50 rows, one thread of {_machine(report)}; medians "
            f"of turns in one process. Before: the scalar nodes of commit {report['before']}. Highest "
            f"growth of the process during a gradient, that of the sample itself included: {memory}.",
            "",
        ]
    )


def _machine(report: Row) -> str:
    return str(report["provenance"]["processor"])


def _cells(row: Row) -> list[str]:
    seconds = row["seconds"]
    shown = [f"{1000 * seconds[name]:.0f}" for name in ("reinforce", "flips", "all")]
    if "before" not in seconds:
        return [str(row["units"]), *shown, "", ""]
    return [str(row["units"]), *shown, f"{1000 * seconds['before']:.0f}", f"{seconds['before'] / seconds['all']:.0f}"]


@in_style
def draw(runs: Sequence[Row]) -> Figure:
    """The validation bound against steps and against seconds."""
    figure = Figure(figsize=(6.4, 2.6), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    _panel(left, runs, "step", "training steps")
    _panel(right, runs, "seconds", "CPU seconds of one thread")
    left.set_ylabel("validation bound, nats")
    right.set_xscale("log")
    highest = max(point["elbo"] for run in runs for point in run["points"])
    left.set_ylim(LOWEST, highest + 2)
    left.legend(frameon=False, loc="lower right")
    return figure


def _panel(panel: Axes, runs: Sequence[Row], axis: str, label: str) -> None:
    labelled: set[str] = set()
    for run in runs:
        points = run["points"][1:]
        style = {k: v for k, v in STYLES[run["way"]].items() if k != "label" or run["way"] not in labelled}
        labelled.add(run["way"])
        panel.plot([point[axis] for point in points], [point["elbo"] for point in points], linewidth=1.2, **style)
    panel.set_xlabel(label)


if __name__ == "__main__":
    write_library(Path(sys.argv[1] if len(sys.argv) > 1 else "results"))
