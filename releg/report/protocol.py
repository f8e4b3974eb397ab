"""protocol.md and protocol.png: estimators under the protocol of the RODEO paper, training bound against steps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from releg.files import readable
from releg.records.file_names import PROTOCOL_CURVES, PROTOCOL_FIGURE, PROTOCOL_PAGE
from releg.records.names import ESTIMATORS
from releg.report.figure import in_style, write_figure
from releg.report.numbers import count, distinct, nats
from releg.report.page import Column, markdown, write_page

Curve = dict[str, Any]

COLOURS = {known.config: known.colour for known in ESTIMATORS.values()}  # of the paper's; others have matplotlib's
LAST = 5_000  # steps whose mean is the training bound at the end

CAPTION = f"""# Estimators under the protocol of a later paper

SBN(200-200-200) with `protocol/rodeo.yaml`: Adam at 0.001, batches of 100, a fixed uniform prior, bits redrawn at
every access, seed 0. Negative bounds in nats, lower is better. Training: the mean over the batches of the last
{LAST:,} steps, of which one in a hundred is logged, and over the paths that an estimator simulates. Validation and
test: of the best validation. RLOO and RODEO simulate two paths per image; DisARM one, and an opposite one from each
layer on; CRN one, with all flips. `python -m lightning_modules.studies.protocol` made the numbers.

**Not converged**: Shi et al. (2022, arXiv:2202.09497) and Titsias and Shi (2022, arXiv:2111.05300) train 1,000,000
steps. Their bounds could not be checked in the papers themselves and are not repeated here. Compare these numbers with
each other, not with theirs. `lightning_modules/README.md` says which differences remain.

![training bound against steps](protocol.png)

A point of the picture is the mean of ten batches.
"""
COLUMNS: list[Column[Curve]] = [
    Column("estimator", lambda curve: curve["label"], is_text=True),
    Column("steps", lambda curve: count(curve["steps"])),
    Column("training", lambda curve: nats(-last_bound(curve))),
    Column("validation", lambda curve: nats(-curve["val/elbo"])),
    Column("test, 100 samples", lambda curve: nats(-curve["test/multi_sample_bound"])),
    Column("minutes", lambda curve: str(curve["minutes"])),
]


def write_protocol(results: Path) -> str:
    """Write the page and its figure."""
    path = results / PROTOCOL_CURVES
    with readable(path, "what python -m lightning_modules.studies.protocol writes", "run it again"):
        curves = sorted(json.loads(path.read_bytes()), key=last_bound, reverse=True)
        commits = f"Commits: {distinct(curve['commit'] for curve in curves)}"
        table, figure = markdown(COLUMNS, curves), draw(curves)
    write_figure(results / PROTOCOL_FIGURE, figure)
    return write_page(results / PROTOCOL_PAGE, CAPTION, table, commits)


def last_bound(curve: Curve) -> float:
    """The mean training bound of the last steps."""
    values = [value for step, value in curve["train"] if step > curve["steps"] - LAST]
    return float(sum(values) / len(values))


@in_style
def draw(curves: Sequence[Curve]) -> Figure:
    """One line per estimator; the best is first in the legend."""
    figure = Figure(figsize=(4.6, 3.2), layout="constrained")
    panel = figure.subplots()
    panel.set_prop_cycle(color=mpl.color_sequences["tab10"][1:])  # the first is a blue like CRN's
    for curve in curves:
        steps, bounds = zip(*curve["train"], strict=True)
        name = curve["estimator"]
        thousands = [step / 1000 for step in steps]
        panel.plot(thousands, bounds, linewidth=0.9, label=curve["label"], color=COLOURS.get(name))
    best = last_bound(curves[0])
    panel.set(xlabel="thousand steps", ylabel="training bound (nats)", ylim=(best - 30, best + 3))
    panel.grid()
    panel.legend()
    return figure
