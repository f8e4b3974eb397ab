"""protocol.md: estimators under the protocol of the RODEO paper."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from releg.files import readable
from releg.records.file_names import PROTOCOL_CURVES
from releg.report.numbers import count, distinct, nats
from releg.report.page import Column, markdown, write_page

Curve = dict[str, Any]

LAST = 5_000  # steps whose mean is the training bound at the end

CAPTION = f"""# Estimators under the protocol of a later paper

SBN(200-200-200) with `protocol/rodeo.yaml`: Adam at 0.001, batches of 100, a fixed uniform prior, bits redrawn at
every access, seed 0. Negative bounds in nats, lower is better. Training: the mean over the batches of the last
{LAST:,} steps, of which one in a hundred is logged, and over the paths that an estimator simulates. Validation and
test: of the best validation. RLOO and RODEO simulate two paths per image; DisARM one, and an opposite one from each
layer on; CRN one, with all flips. `python -m lightning_modules.studies.protocol` made the numbers.

**Not converged**: compare these numbers with each other, not with those of the papers (lightning_modules/README.md).

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
    """Write the page."""
    path = results / PROTOCOL_CURVES
    with readable(path, "what python -m lightning_modules.studies.protocol writes", "run it again"):
        curves = sorted(json.loads(path.read_bytes()), key=last_bound, reverse=True)
        commits = f"Commits: {distinct(curve['commit'] for curve in curves)}"
        table = markdown(COLUMNS, curves)
    return write_page(results / "protocol.md", CAPTION, table, commits)


def last_bound(curve: Curve) -> float:
    """The mean training bound of the last steps."""
    values = [value for step, value in curve["train"] if step > curve["steps"] - LAST]
    return float(sum(values) / len(values))
