"""Table 1: variational bound of the negative log-likelihood on the test images, next to the paper's."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from releg.files import readable, write_json
from releg.records.file_names import PAPER, TABLE1
from releg.records.names import AUTHORS_STEPS, ESTIMATORS, label_of, longer_folders
from releg.records.runs import Entry, read_missing, read_runs
from releg.report.numbers import count, nats, one_decimal, plus_minus, signed
from releg.report.page import Column, markdown, write_page
from releg.report.settings import settings

Row = dict[str, Any]
Paper = dict[str, dict[str, float]]

CAPTION = (
    "**Table 1.** Negative elbo, a bound of the negative log-likelihood, on the {data} test images, in nats per image "
    "(lower is better). Mean ± standard deviation over seeds. Minutes: the training steps of the fastest seed, without "
    f"validation and measurements; other work on the machine adds to them. The authors' later code trains "
    f"{AUTHORS_STEPS:,} steps."
)
LONGER = "## Trained for longer"
MISSING = "Not in this table:"
GAPS = "LR − CRN, at equal steps:"


def bound_of(row: Row) -> str:
    """Mean and deviation over seeds."""
    return plus_minus(row["test_nll_mean"], row["test_nll_sd"])


COLUMNS: list[Column[Row]] = [
    Column("SBN", lambda row: row["architecture"], is_text=True),
    Column("estimator", lambda row: label_of(row["estimator"]), is_text=True),
    Column("ours", bound_of),
    Column("paper", lambda row: None if row["paper"] is None else nats(row["paper"])),
    Column("difference", lambda row: None if row["paper"] is None else signed(row["difference"])),
    Column("multi-sample bound", lambda row: plus_minus(row["multi_sample_nll_mean"], row["multi_sample_nll_sd"])),
    Column("samples", lambda row: str(row["samples"])),
    Column("steps", lambda row: count(row["steps"])),
    Column("recipe", lambda row: row["recipe"], is_text=True),
    Column("best step", lambda row: " to ".join(map(count, sorted({min(row["best_steps"]), max(row["best_steps"])})))),
    Column("minutes", lambda row: one_decimal(row["minutes"])),
    Column("seeds", lambda row: str(len(row["seeds"]))),
]


def write_table1(results: Path) -> str:
    """Write table1.md and .json; return the Markdown.

    The published table also has the rows of longer budgets, except in table1.json: each folder has its own.
    """
    runs = read_runs(results)
    rows, longer = table_rows(runs, read_paper(results)), longer_rows(results)
    caption = CAPTION.format(data=" and ".join(dict.fromkeys(run.data for run in runs)) or "MNIST")
    missing = "\n".join(f"- {name}: {reason}" for name, reason in read_missing(results).items())
    path = write_json(results / TABLE1, rows, indent=2)
    return write_page(
        path.with_suffix(".md"),
        *(caption, markdown(COLUMNS, rows), missing and f"{MISSING}\n\n{missing}", _gap_table(rows)),
        *([LONGER, markdown(COLUMNS, longer)] if longer else []),
        settings(runs),
    )


def read_paper(results: Path) -> Paper:
    """The paper's numbers by architecture and estimator."""
    path = results / PAPER
    with readable(path, "the paper's Table 1", "restore it with git"):
        numbers = json.loads(path.read_bytes())["test_nll"]
        return {name: {key: float(value) for key, value in of_net.items()} for name, of_net in numbers.items()}


def table_rows(runs: Sequence[Entry], paper: Paper) -> list[Row]:
    """One row per net and paper estimator that has a finished run: the paper's nets in its order, then others."""
    nets = dict.fromkeys([*paper, *(run.net for run in runs)])
    cells = [[run for run in runs if run.cell == (net, name)] for net in nets for name in ESTIMATORS]
    return [_row(of_cell, paper) for of_cell in cells if of_cell]


def _row(runs: list[Entry], paper: Paper) -> Row:
    """One row for runs that differ only in their seeds."""
    first = runs[0]
    nll = [-run.result["test/elbo"] for run in runs]
    multi_sample = [-run.result["test/multi_sample_bound"] for run in runs]
    published = paper.get(first.net, {}).get(first.estimator)
    return {
        "architecture": first.net,
        "estimator": first.estimator,
        "steps": first.steps,
        "recipe": first.recipe,
        "seeds": sorted(run.seed for run in runs),
        "test_nll_mean": statistics.fmean(nll),
        "test_nll_sd": _sd(nll),
        "paper": published,
        "difference": None if published is None else statistics.fmean(nll) - published,
        "multi_sample_nll_mean": statistics.fmean(multi_sample),
        "multi_sample_nll_sd": _sd(multi_sample),
        "samples": first.config["model.test_samples"],
        "best_steps": [run.result["best_step"] for run in sorted(runs, key=lambda run: run.seed)],
        "minutes": min(run.result["training_seconds"] for run in runs) / 60,  # other work only slows a run
    }


def _sd(values: list[float]) -> float | None:
    return statistics.stdev(values) if len(values) > 1 else None


def longer_rows(results: Path) -> list[Row]:
    """The rows of the longer budgets whose tables are in folders of this one."""
    rows: list[Row] = []
    for path in (folder / TABLE1 for folder in longer_folders(results)):
        if path.is_file():
            with readable(path, "the table of a longer budget", "restore it with git"):
                rows += json.loads(path.read_bytes())
    return rows


def gaps(rows: Sequence[Row], kind: str) -> dict[str, float]:
    """LR minus CRN by net, where both are known."""
    bounds = {(row["architecture"], row["estimator"]): float(row[kind]) for row in rows if row[kind] is not None}
    return {
        net: lr - bounds[net, "crn"] for (net, name), lr in bounds.items() if name == "lr" and (net, "crn") in bounds
    }


def _gap_table(rows: list[Row]) -> str:
    ours, paper = gaps(rows, "test_nll_mean"), gaps(rows, "paper")
    columns: list[Column[str]] = [
        Column("SBN", str, is_text=True),
        Column("ours", lambda net: signed(ours[net])),
        Column("paper", lambda net: signed(paper[net]) if net in paper else None),
    ]
    return f"{GAPS}\n\n{markdown(columns, list(ours))}" if ours else ""


def short_table(results: Path) -> str:
    """The table of the project's first page: ours beside the paper's."""
    with readable(results / TABLE1, "Table 1", "run reproduce.sh"):
        rows = {(row["architecture"], row["estimator"]): row for row in json.loads((results / TABLE1).read_bytes())}
    paper = read_paper(results)

    def ours(name: str) -> Column[str]:
        return Column(label_of(name), lambda net: bound_of(rows[net, name]) if (net, name) in rows else None)

    def papers(name: str) -> Column[str]:
        return Column(f"{label_of(name)}, paper", lambda net: nats(paper[net][name]) if net in paper else None)

    columns: list[Column[str]] = [Column("SBN", str, is_text=True), *map(ours, ESTIMATORS), *map(papers, ESTIMATORS)]
    return markdown(columns, list(dict.fromkeys([*paper, *(net for net, _ in rows)]))) + "\n"
