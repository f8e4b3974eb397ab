"""What reproduce.sh prints at its end: its table beside the paper's and the published one, and where the rest is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lightning_modules import RESULTS
from releg.records.file_names import FIGURE1, TABLE1
from releg.records.names import PUBLISHED_BUDGET, label_of
from releg.report.numbers import count, nats, one_decimal, plus_minus
from releg.report.page import Column, markdown

Row = dict[str, Any]  # of table1.json


def closing_words(results: Path, budget: str) -> str:
    """The table of the runs in the folder, and the paths of the pages."""
    rows = _rows(results)
    compared = budget if (RESULTS / budget / TABLE1).is_file() else PUBLISHED_BUDGET
    published = {_cell(row): row for row in _rows(RESULTS if compared == PUBLISHED_BUDGET else RESULTS / compared)}
    columns: list[Column[Row]] = [
        Column("SBN", lambda row: str(row["architecture"]), is_text=True),
        Column("estimator", lambda row: label_of(row["estimator"]), is_text=True),
        Column("negative test elbo", _bound),
        Column(f"published, {compared}", lambda row: _bound(published.get(_cell(row)))),
        Column("paper", lambda row: None if row["paper"] is None else nats(row["paper"])),
        Column("steps", lambda row: count(row["steps"])),
        Column("minutes", lambda row: one_decimal(row["minutes"])),
    ]
    figure = (results / FIGURE1).with_suffix(".png")
    pages = [("Table 1", (results / TABLE1).with_suffix(".md")), ("Figure 1", figure)]
    lines = [f"{name}: {path}" for name, path in pages if path.is_file()]
    return "\n".join(filter(None, [markdown(columns, rows), *lines]))


def _rows(folder: Path) -> list[Row]:
    return list(json.loads((folder / TABLE1).read_bytes())) if (folder / TABLE1).is_file() else []


def _cell(row: Row) -> tuple[str, str]:
    return row["architecture"], row["estimator"]


def _bound(row: Row | None) -> str | None:
    return None if row is None else plus_minus(row["test_nll_mean"], row["test_nll_sd"])
