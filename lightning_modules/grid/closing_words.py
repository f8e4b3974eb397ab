"""What reproduce.sh prints at its end: its table beside the paper's and the published one, and where the rest is."""

from __future__ import annotations

import json
from pathlib import Path

from lightning_modules import RESULTS
from releg.records.file_names import FIGURE1, TABLE1
from releg.records.names import PUBLISHED_BUDGET, label_of
from releg.report.numbers import count, nats, one_decimal
from releg.report.page import Column, markdown
from releg.report.table1 import Row, bound_of


def closing_words(results: Path, budget: str) -> str:
    """The table of the runs in the folder, and the paths of the pages."""
    same = (RESULTS / budget / TABLE1).is_file()
    published = {_cell(row): row for row in _rows(RESULTS / budget if same else RESULTS)}
    columns: list[Column[Row]] = [
        Column("SBN", lambda row: str(row["architecture"]), is_text=True),
        Column("estimator", lambda row: label_of(row["estimator"]), is_text=True),
        Column("negative test elbo", bound_of),
        Column(
            f"published, {budget if same else PUBLISHED_BUDGET}",
            lambda row: bound_of(published[_cell(row)]) if _cell(row) in published else None,
        ),
        Column("paper", lambda row: None if row["paper"] is None else nats(row["paper"])),
        Column("steps", lambda row: count(row["steps"])),
        Column("minutes", lambda row: one_decimal(row["minutes"])),
    ]
    pages = {"Table 1": (results / TABLE1).with_suffix(".md"), "Figure 1": (results / FIGURE1).with_suffix(".png")}
    lines = [f"{name}: {path}" for name, path in pages.items() if path.is_file()]
    return "\n".join([markdown(columns, _rows(results)), *lines]).strip()


def _rows(folder: Path) -> list[Row]:
    return list(json.loads((folder / TABLE1).read_bytes())) if (folder / TABLE1).is_file() else []


def _cell(row: Row) -> tuple[str, str]:
    return row["architecture"], row["estimator"]
