"""Estimators under the protocol of the RODEO paper: a section of race.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from releg.files import readable
from releg.records.file_names import PROTOCOL_CURVES
from releg.report.numbers import count, distinct, nats
from releg.report.page import Column, markdown

Curve = dict[str, Any]

LAST = 5_000  # steps whose mean is the training bound at the end
TITLE = "The protocol of later papers"
CAPTION = f"""SBN(200-200-200) with `protocol/rodeo.yaml`: Adam at 0.001, batches of 100, a fixed uniform prior, bits
redrawn at every access, seed 0. Negative elbos in nats, lower is better. Training: the mean over the batches of the
last {LAST:,} steps, of which one in a hundred is logged, and over the paths that an estimator simulates. Validation and
test: of the best validation. Sibling RODEO and sibling RLOO, as published, and DisARM simulate one path per image, and
a second sample from each layer on; RLOO and RODEO two independent paths; CRN one path, with all flips. The papers train
1,000,000 steps: shorter and unfinished runs can be compared with each other at most.
`python -m lightning_modules.studies.protocol` made the numbers."""
COLUMNS: list[Column[Curve]] = [
    Column("estimator", lambda curve: curve["label"], is_text=True),
    Column("steps", lambda curve: _steps(curve)),
    Column("training", lambda curve: nats(-last_bound(curve))),
    Column("validation", lambda curve: nats(-curve["val/elbo"])),
    Column("test", lambda curve: _bound(curve, "test/elbo")),
    Column("test, 100 samples", lambda curve: _bound(curve, "test/multi_sample_bound")),
    Column("minutes", lambda curve: str(curve["minutes"])),
]


def section(results: Path) -> list[str]:
    """Title, caption, table and commits; longer runs come first, then the lowest training bounds."""
    path = results / PROTOCOL_CURVES
    with readable(path, "what python -m lightning_modules.studies.protocol writes", "run it again"):
        curves = json.loads(path.read_bytes())
        curves.sort(key=lambda curve: (-curve["steps"], -last_bound(curve)))
        commits = f"Commits: {distinct(curve['commit'] for curve in curves)}"
        return [f"## {TITLE}", CAPTION, markdown(COLUMNS, curves), commits]


def _steps(curve: Curve) -> str:
    """The steps, or how many of them are done."""
    done, steps = curve["train"][-1][0], curve["steps"]
    return f"unfinished: {count(done)} of {count(steps)}" if curve.get("unfinished") else count(steps)


def _bound(curve: Curve, name: str) -> str:
    return nats(-curve[name]) if curve.get(name) is not None else "–"


def last_bound(curve: Curve) -> float:
    """The mean training bound of the last steps."""
    end = curve["train"][-1][0]
    values = [value for step, value in curve["train"] if step > end - LAST]
    return float(sum(values) / len(values))
