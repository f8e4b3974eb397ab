"""protocol.md and protocol.png: estimators under the protocol of the RODEO paper, training bound against steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from releg.files import write_atomically
from releg.records.file_names import PROTOCOL_CURVES, PROTOCOL_FIGURE, PROTOCOL_PAGE
from releg.records.names import ESTIMATORS, label_of
from releg.report.artefacts import readable
from releg.report.style import as_bytes, in_style
from releg.report.tables import table

Entry = dict[str, Any]

PAPERS_STEPS = 1_000_000
COLOURS = {known.config: known.colour for known in ESTIMATORS.values()}  # of the paper's; others have matplotlib's
LAST = 5_000  # steps whose mean is the training bound at the end

INTRODUCTION = f"""# Estimators under the protocol of a later paper

SBN(200-200-200) with `protocol/rodeo.yaml`: Adam at 0.001, batches of 100, a fixed uniform prior, bits redrawn at every
access, seed 0. Negative bounds in nats, lower is better: the training bound (as logged, for one batch in a hundred
steps; the mean over the paths that an estimator simulates and over the batches of the last {LAST:,} steps), and for the
best validation the elbo on the validation images and the bound of 100 samples on the test images. A point of the
picture is the mean of ten batches. RLOO and RODEO simulate two paths per image; DisARM one, and an opposite one from
each layer on; CRN one, with all flips.
"""

CAUTION = """**Not converged**: {steps:,} steps, where Shi et al. (2022, arXiv:2202.09497) and Titsias and Shi (2022,
arXiv:2111.05300) train {papers:,}. Their tables have the training and test bounds of the same three layers at the end
of that; they are not repeated here, since they could not be checked in the papers themselves. Compare these numbers
with each other, not with theirs. `lightning_modules/README.md` says which differences remain.
"""


def write_protocol(results: Path) -> list[Path]:
    """Write the page and its figure if the runs exist."""
    path = results / PROTOCOL_CURVES
    if not path.is_file():
        return []
    with readable(path, "what python -m lightning_modules.studies.protocol writes", "run it again"):
        entries: list[Entry] = json.loads(path.read_bytes())
        text, picture = _page(entries), as_bytes(draw(entries))
    return [write_atomically(results / PROTOCOL_PAGE, text), write_atomically(results / PROTOCOL_FIGURE, picture)]


def _page(entries: list[Entry]) -> str:
    head = ["estimator", "training", "validation", "test, 100 samples"]
    body = [
        [
            label_of(entry["estimator"]),
            f"{-last_bound(entry):.2f}",
            f"{-entry['val/elbo']:.2f}",
            f"{-entry['test/multi_sample_bound']:.2f}",
        ]
        for entry in sorted(entries, key=last_bound, reverse=True)
    ]
    caution = CAUTION.format(steps=max(entry["steps"] for entry in entries), papers=PAPERS_STEPS)
    commits = ", ".join(dict.fromkeys(entry["commit"] for entry in entries))
    made = f"`python -m lightning_modules.studies.protocol` made these numbers, at commit {commits}."
    picture = f"![training bound against steps]({PROTOCOL_FIGURE})"
    return "\n".join([INTRODUCTION, *table(head, body), "", caution, picture, "", made]) + "\n"


def last_bound(entry: Entry) -> float:
    """The mean training bound of the last steps."""
    values = [value for step, value in entry["train"] if step > entry["steps"] - LAST]
    return float(sum(values) / len(values))


@in_style
def draw(entries: list[Entry]) -> Figure:
    """One line per estimator; the best is first in the legend."""
    figure = Figure(figsize=(4.6, 3.2), layout="constrained")
    panel = figure.subplots()
    panel.set_prop_cycle(color=mpl.color_sequences["tab10"][1:])  # the first is a blue like CRN's
    ordered = sorted(entries, key=last_bound, reverse=True)
    for entry in ordered:
        steps, bounds = zip(*entry["train"], strict=True)
        name = entry["estimator"]
        thousands = [step / 1000 for step in steps]
        panel.plot(thousands, bounds, linewidth=0.9, label=label_of(name), color=COLOURS.get(name))
    best = last_bound(ordered[0])
    panel.set_ylim(best - 30, best + 3)
    panel.set_xlabel("thousand steps")
    panel.set_ylabel("training elbo (nats per image), higher is better")
    panel.set_title(f"SBN(200-200-200), not converged: the papers train {PAPERS_STEPS:,} steps", fontsize=7, loc="left")
    panel.grid(linewidth=0.3, alpha=0.6)
    panel.legend(frameon=False)
    return figure
