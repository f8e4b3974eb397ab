"""Tables as text: Markdown and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any


def table(head: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 1) -> list[str]:
    """A Markdown table, line by line; the first columns hold texts, the others numbers."""
    rule = [*["---"] * texts, *["---:"] * (len(head) - texts)]
    return [f"| {' | '.join(cells)} |" for cells in (head, rule, *rows)]


def plus_minus(mean: float, sd: float | None, sign: str = "±") -> str:
    """97.63 ± 0.05, or the mean alone."""
    return f"{mean:.2f}" if sd is None else f"{mean:.2f} {sign} {sd:.2f}"


def as_csv(rows: Sequence[dict[str, Any]]) -> str:
    """The rows of a JSON file as CSV; lists become words separated by spaces, None an empty cell."""
    text = io.StringIO()
    if rows:
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({k: " ".join(map(str, v)) if isinstance(v, list) else v for k, v in row.items()})
    return text.getvalue()
