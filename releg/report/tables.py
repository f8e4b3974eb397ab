"""Markdown tables of texts; page.py has columns."""

from __future__ import annotations

from collections.abc import Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 1) -> list[str]:
    """A Markdown table, line by line; the first columns hold texts, the others numbers."""
    rule = [*["---"] * texts, *["---:"] * (len(head) - texts)]
    return [f"| {' | '.join(cells)} |" for cells in (head, rule, *rows)]
