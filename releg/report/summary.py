"""What the project's README shows first: Table 1 in short, beside the paper's. python -m releg.report.summary"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from releg.report.runs import Manifest, budget_sentence, read_manifest
from releg.report.tables import line, rule

HEAD = ["SBN", "LR", "CRN", "LR − CRN", "LR, paper", "CRN, paper", "LR − CRN, paper"]


def summary(results: Path) -> str:
    """The table, and how long it took on which machine."""
    manifest = read_manifest(results)
    rows: list[dict[str, Any]] = json.loads((results / "table1.json").read_bytes())
    lines = [line(HEAD), rule(len(HEAD))]
    for architecture in dict.fromkeys(row["architecture"] for row in rows):
        cells = {row["estimator"]: row for row in rows if row["architecture"] == architecture}
        numbers = []
        for kind in ("test_nll_mean", "paper"):
            lr, crn = (float(cells[name][kind]) for name in ("lr", "crn"))
            numbers += [f"{lr:.2f}", f"{crn:.2f}", f"{lr - crn:.2f}"]
        lines.append(line([architecture, *numbers]))
    return "\n".join([*lines, "", f"{budget_sentence(manifest.runs)} {_how(manifest)}"]) + "\n"


def _how(manifest: Manifest) -> str:
    machines = dict.fromkeys(_machine(entry) for run in manifest.runs for entry in run.provenance)
    if manifest.seconds is None:  # several commands made the runs
        minutes = sum(float(run.result["training_seconds"]) for run in manifest.runs) / 60
        return f"All runs together were trained for {minutes:.0f} minutes on {', '.join(machines)}."
    return f"`{manifest.command}` took {manifest.seconds / 60:.0f} minutes on {', '.join(machines)}."


def _machine(entry: dict[str, Any]) -> str:
    return f"{entry.get('processor', 'an unknown processor')}, {entry.get('cores', 'unknown')} cores"


if __name__ == "__main__":
    print(summary(Path(sys.argv[1] if len(sys.argv) > 1 else "results")), end="")
