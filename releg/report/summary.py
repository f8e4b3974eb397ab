"""The table on the project's first page: Table 1 in short. python -m releg.report.summary"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from releg.naming.file_names import TABLE1
from releg.naming.names import ESTIMATORS, label_of
from releg.report.runs import Manifest, Row, budget_sentence, machine, read_manifest
from releg.report.table1 import longer_rows, read_paper
from releg.report.tables import table

HEAD = ["SBN", "LR", "CRN", "LR, paper", "CRN, paper", "LR − paper", "CRN − paper"]
KINDS = ("test_nll_mean", "paper", "difference")


def summary(results: Path) -> str:
    """The table, the effect of longer training, the training time and the machine."""
    manifest = read_manifest(results)
    rows: list[Row] = json.loads((results / TABLE1).read_bytes())
    paper = read_paper(results)
    nets = dict.fromkeys([*paper, *(row["architecture"] for row in rows)])
    body = [
        [
            net,
            *(_number(rows, net, name, "test_nll_mean") for name in ESTIMATORS),
            *(f"{paper[net][name]:.2f}" if net in paper else "" for name in ESTIMATORS),
            *(_number(rows, net, name, "difference") for name in ESTIMATORS),
        ]
        for net in nets
    ]
    lines = [*table(HEAD, body), "", f"{budget_sentence(manifest.runs)} {_how(manifest)}"]
    return "\n".join([*lines, *_longer(longer_rows(results))]) + "\n"


def _number(rows: list[Row], net: str, estimator: str, kind: str) -> str:
    """One number of a cell; empty if it is unknown."""
    known = [row[kind] for row in rows if (row["architecture"], row["estimator"]) == (net, estimator)]
    if not known or known[0] is None:
        return ""
    return f"{known[0]:+.2f}" if kind == "difference" else f"{known[0]:.2f}"


def _longer(rows: list[Row]) -> list[str]:
    """The cells that were trained for longer than the table's."""
    if not rows:
        return []
    head = ["SBN", "estimator", "steps", "bound", "paper", "difference"]
    body = [
        [row["architecture"], label_of(row["estimator"]), f"{row['steps']:,}"]
        + [_number([row], row["architecture"], row["estimator"], kind) for kind in KINDS]
        for row in rows
    ]
    return ["", "Trained for longer:", "", *table(head, body, texts=2)]


def _how(manifest: Manifest) -> str:
    machines = dict.fromkeys(machine(entry) for run in manifest.runs for entry in run.provenance)
    if manifest.seconds is None:  # several commands made the runs
        minutes = sum(float(run.result["training_seconds"]) for run in manifest.runs) / 60
        return f"All runs together took {minutes:.0f} minutes of training on {', '.join(machines)}."
    return f"`{manifest.command}` took {manifest.seconds / 60:.0f} minutes on {', '.join(machines)}."


if __name__ == "__main__":
    print(summary(Path(sys.argv[1] if len(sys.argv) > 1 else "results")), end="")
