"""What the library's gradients cost and reach, on releg/README.md: python -m releg.report.library [RESULTS].

Reads library_times.json and library_training.json, writes library.png and the text between the page's two marks.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from releg.files import write_atomically
from releg.records.file_names import LIBRARY_TIMES, LIBRARY_TRAINING
from releg.records.names import ESTIMATORS
from releg.report.figure import in_style, write_figure
from releg.report.page import Column, markdown

PAGE = Path(__file__).parents[1] / "README.md"
BEGIN, END = "<!-- python -m releg.report.library -->\n", "<!-- end -->\n"
FIGURE = "![validation bound of the VAE against steps and against CPU seconds](../results/library.png)"
HEADS = {"reinforce": "REINFORCE, 2 samples", "flips": "CRN, 8 flips per layer", "all": "CRN, all flips"}
STYLES: dict[str, Any] = {
    "reinforce": {"label": "REINFORCE, leave-one-out", "color": ESTIMATORS["lr"].colour},
    "flips": {"label": "CRN, 8 flips per layer", "color": ESTIMATORS["crn"].colour, "linestyle": "--"},
    "all": {"label": "CRN, all flips", "color": ESTIMATORS["crn"].colour},
}
LOWEST = -210  # nats: below this, the curves coincide

Row = Mapping[str, Any]


def write_library(results: Path, page: Path = PAGE) -> None:
    """Write the tables of the page, and the figure."""
    training = json.loads((results / LIBRARY_TRAINING).read_bytes())
    write_figure(results / "library.png", draw(training))
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    shown = "\n\n".join([*times(results), FIGURE, *bounds(training)])
    write_atomically(page, f"{before}{BEGIN}{shown}\n{END}{after}")


def times(results: Path) -> list[str]:
    """Milliseconds per gradient by number of units, and its memory."""
    report = json.loads((results / LIBRARY_TIMES).read_bytes())
    memory = ", ".join(
        f"{peak['tensors']:g} MiB under a bound of {bound}" for bound, peak in report["memory_mib"].items()
    )
    columns: list[Column[Row]] = [
        Column("units", lambda row: str(row["units"]), is_text=True),
        *(Column(head, partial(_milliseconds, way)) for way, head in HEADS.items()),
    ]
    return [
        markdown(columns, report["rows"]),
        f"CPU milliseconds per gradient with its backward pass, 50 rows, one thread of "
        f"{report['provenance']['processor']}; medians over turns in one process. The tensors of a gradient with 200 "
        f"units, including its sample, take at most {memory}.",
    ]


def _milliseconds(way: str, row: Row) -> str:
    return f"{1000 * row['seconds'][way]:.0f}"


def bounds(report: Row) -> list[str]:
    """Bounds by learning rate after the same steps, and after the same seconds at the rate of the figure."""
    seconds = min(run["points"][-1]["seconds"] for run in _shown(report))
    points = {(run["way"], run["rate"]): run["points"] for run in report["runs"]}

    def at_the_end(rate: float, way: str) -> str:
        return next(f"{point['elbo']:.1f}" for point in points[way, rate] if point["step"] == report["steps"])

    def in_time(way: str) -> Row:
        return [point for point in points[way, report["rate"]] if point["seconds"] <= seconds][-1]

    columns: list[Column[str]] = [
        Column("bound, nats", lambda way: STYLES[way]["label"], is_text=True),
        *(Column(f"rate {rate:g}", partial(at_the_end, rate)) for rate in sorted({rate for _, rate in points})),
        Column(f"{seconds:.0f} s", lambda way: f"{in_time(way)['elbo']:.1f}"),
        Column("steps in that time", lambda way: str(in_time(way)["step"])),
    ]
    return [
        markdown(columns, list(STYLES)),
        f"Validation bounds after {report['steps']} steps of Adam by learning rate, and after the same CPU seconds "
        f"at {report['rate']:g}, the best rate for REINFORCE, which the figure shows. One seed, {report['batch']} "
        "images per step.",
    ]


def _shown(report: Row) -> list[Row]:
    """The runs of the figure."""
    return [run for run in report["runs"] if run["rate"] == report["rate"]]


@in_style
def draw(report: Row) -> Figure:
    """The validation bound against steps and against seconds."""
    figure = Figure(figsize=(6.4, 2.6), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for run in _shown(report):
        points = run["points"][1:]
        for panel, axis in ((left, "step"), (right, "seconds")):
            across = [point[axis] for point in points]
            panel.plot(across, [point["elbo"] for point in points], linewidth=1.2, **STYLES[run["way"]])
    left.set(xlabel="training steps", ylabel="validation bound, nats", xlim=(0, report["steps"]))
    right.set(xlabel="CPU seconds of one thread", xscale="log")
    right.xaxis.set_major_formatter("{x:g}")
    highest = max(point["elbo"] for run in _shown(report) for point in run["points"])
    left.set_ylim(LOWEST, highest + 5)
    left.legend(frameon=False, loc="lower right")
    return figure


if __name__ == "__main__":
    write_library(Path(sys.argv[1] if len(sys.argv) > 1 else "results"))
