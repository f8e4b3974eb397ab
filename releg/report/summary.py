"""The table on the project's first page: Table 1 in short. python -m releg.report.summary"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from releg.report.runs import Manifest, Row, budget_sentence, machine, read_manifest
from releg.report.table1 import gap
from releg.report.tables import table

HEAD = ["SBN", "LR", "CRN", "LR − CRN", "LR, paper", "CRN, paper", "LR − CRN, paper"]


def summary(results: Path) -> str:
    """The table, and how long it took on which machine."""
    manifest = read_manifest(results)
    rows: list[Row] = json.loads((results / "table1.json").read_bytes())
    nets = dict.fromkeys(row["architecture"] for row in rows)
    body = [[net, *_numbers(rows, net, "test_nll_mean"), *_numbers(rows, net, "paper")] for net in nets]
    return "\n".join([*table(HEAD, body), "", f"{budget_sentence(manifest.runs)} {_how(manifest)}"]) + "\n"


def _numbers(rows: list[Row], net: str, kind: str) -> list[str]:
    """LR, CRN and their gap; what is not known is empty."""
    mine = {row["estimator"]: row[kind] for row in rows if row["architecture"] == net}
    numbers = [mine.get("lr"), mine.get("crn"), gap(rows, kind).get(net)]
    return ["" if number is None else f"{number:.2f}" for number in numbers]


def _how(manifest: Manifest) -> str:
    machines = dict.fromkeys(machine(entry) for run in manifest.runs for entry in run.provenance)
    if manifest.seconds is None:  # several commands made the runs
        minutes = sum(float(run.result["training_seconds"]) for run in manifest.runs) / 60
        return f"All runs together took {minutes:.0f} minutes of training on {', '.join(machines)}."
    return f"`{manifest.command}` took {manifest.seconds / 60:.0f} minutes on {', '.join(machines)}."


if __name__ == "__main__":
    print(summary(Path(sys.argv[1] if len(sys.argv) > 1 else "results")), end="")
