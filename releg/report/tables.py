"""Tables as text: Markdown and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any


def line(cells: Sequence[str]) -> str:
    """One line of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def rule(columns: int, texts: int = 1) -> str:
    """The line under the head: the first columns hold texts, the others numbers."""
    return line([*["---"] * texts, *["---:"] * (columns - texts)])


def as_csv(rows: Sequence[dict[str, Any]]) -> str:
    """The rows of a JSON file as CSV; lists are separated by blanks."""
    text = io.StringIO()
    if rows:
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({k: " ".join(map(str, v)) if isinstance(v, list) else v for k, v in row.items()})
    return text.getvalue()
