"""The table on the project's first page: Table 1 in short. python -m releg.report.summary"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from releg.records.file_names import TABLE1
from releg.records.names import ESTIMATORS, label_of
from releg.report.runs import Manifest, Row, budget_sentence, machine, on_one_thread, read_manifest, training_minutes
from releg.report.table1 import longer_rows, read_paper
from releg.report.tables import plus_minus, table

HEAD = ["SBN", "LR", "CRN", "LR, paper", "CRN, paper", "LR − paper", "CRN − paper"]


def summary(results: Path) -> str:
    """The table, the effect of longer training, the training time and the machine."""
    manifest = read_manifest(results)
    rows: list[Row] = json.loads((results / TABLE1).read_bytes())
    paper = read_paper(results)
    nets = dict.fromkeys([*paper, *(row["architecture"] for row in rows)])
    cells = {(row["architecture"], row["estimator"]): row for row in rows}
    body = [
        [
            net,
            *(_bound(cells.get((net, name))) for name in ESTIMATORS),
            *(f"{paper[net][name]:.2f}" if net in paper else "" for name in ESTIMATORS),
            *(_difference(cells.get((net, name))) for name in ESTIMATORS),
        ]
        for net in nets
    ]
    longer = longer_rows(results)
    several = any(len(row["seeds"]) > 1 for row in (*rows, *longer))
    over_seeds = " ± is the standard deviation over seeds." if several else ""
    lines = [*table(HEAD, body), "", f"{budget_sentence(manifest.runs)} {_how(manifest, rows)}{over_seeds}"]
    return "\n".join([*lines, *_longer(longer)]) + "\n"


def _bound(row: Row | None) -> str:
    """With its deviation if there are several seeds; empty if there is none."""
    return "" if row is None else plus_minus(row["test_nll_mean"], row["test_nll_sd"])


def _difference(row: Row | None) -> str:
    """To the paper; empty if one of the two is unknown."""
    return "" if row is None or row["difference"] is None else f"{row['difference']:+.2f}"


def _longer(rows: list[Row]) -> list[str]:
    """The cells that were trained for longer than the table's."""
    if not rows:
        return []
    head = ["SBN", "estimator", "steps", "bound", "paper", "difference", "minutes"]
    body = [
        [
            row["architecture"],
            label_of(row["estimator"]),
            f"{row['steps']:,}",
            _bound(row),
            "" if row["paper"] is None else f"{row['paper']:.2f}",
            _difference(row),
            f"{row['minutes']:.0f}",
        ]
        for row in rows
    ]
    notes = dict.fromkeys(row["note"] for row in rows)
    return ["", "Trained for longer:", "", *table(head, body, texts=2), "", " ".join(notes)]


def _how(manifest: Manifest, rows: list[Row]) -> str:
    machines = ", ".join(dict.fromkeys(machine(entry) for run in manifest.runs for entry in run.provenance))
    if manifest.seconds is None:  # several commands made the runs
        minutes, threads = training_minutes(manifest.runs), on_one_thread(manifest.runs)
        steps = f"The training steps of the {len(manifest.runs)} runs add up to {minutes:.0f} minutes{threads}"
        fastest = f", those of the fastest run of each cell to {sum(row['minutes'] for row in rows):.0f}"
        one_seed = fastest if len(rows) < len(manifest.runs) else ""
        return f"{steps} ({machines}), without validation and measurements{one_seed}."
    return f"`{manifest.command}` took {manifest.seconds / 60:.0f} minutes on {machines}."


if __name__ == "__main__":
    print(summary(Path(sys.argv[1] if len(sys.argv) > 1 else "results")), end="")
