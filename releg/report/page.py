"""What pages share: a table is columns and rows; and what made the numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from releg.files import write_atomically
from releg.records.runs import commit

Row = TypeVar("Row")


@dataclass(frozen=True)
class Column(Generic[Row]):
    """One column of a table; a cell that is None stays empty."""

    head: str
    cell: Callable[[Row], str | None]
    is_text: bool = False  # texts are aligned to the left, numbers to the right

    def cells(self, rows: Iterable[Row]) -> list[str]:
        """The text of this column in each row."""
        return [self.cell(row) or "" for row in rows]


def markdown(columns: Sequence[Column[Row]], rows: Sequence[Row]) -> str:
    """A Markdown table; empty if there are no rows."""
    if not rows:
        return ""
    rule = ["---" if column.is_text else "---:" for column in columns]
    lines = [[column.head for column in columns], rule, *zip(*(column.cells(rows) for column in columns), strict=True)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def write_page(path: Path, *parts: str) -> str:
    """Write a Markdown page of these parts, without the empty ones; return its text."""
    text = "\n\n".join(part.strip("\n") for part in parts if part) + "\n"
    write_atomically(path, text)
    return text


def remove(*paths: Path) -> None:
    """Delete files that cannot be made now, so that nobody takes them for new ones."""
    for path in paths:
        path.unlink(missing_ok=True)


def machine(entry: Mapping[str, Any]) -> str:
    """Processor and cores of an entry of provenance."""
    facts = [entry.get("processor") or "an unknown processor", f"{entry.get('cores', 'unknown')} cores"]
    return ", ".join([*facts, *entry.get("gpus", [])])


# What made the numbers of a page, by the name of a fact
FACTS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "commit": commit,
    "machine": machine,
    "Python": lambda entry: str(entry.get("python") or ""),
    "packages": lambda entry: ", ".join(f"{name} {v}" for name, v in entry.get("packages", {}).items() if v),
    "data": lambda entry: f"SHA-256 {entry['data_sha256']}" if entry.get("data_sha256") else "",
}


def made_by(provenance: Sequence[Mapping[str, Any]]) -> str:
    """A list of commits, machines, versions and data; provenance has an entry for each process that took part."""
    facts = {name: dict.fromkeys(filter(None, map(fact, provenance))) for name, fact in FACTS.items()}
    return "\n".join(f"- {name}: {'; '.join(values)}" for name, values in facts.items() if values)
