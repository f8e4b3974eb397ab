"""Tables as text: Markdown and CSV."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from releg.records.csv_formats import csv_text

TOO_LARGE = 1e8  # to be read without counting zeros


def table(head: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 1) -> list[str]:
    """A Markdown table, line by line; the first columns hold texts, the others numbers."""
    rule = [*["---"] * texts, *["---:"] * (len(head) - texts)]
    return [f"| {' | '.join(cells)} |" for cells in (head, rule, *rows)]


def plus_minus(mean: float, sd: float | None, sign: str = "±") -> str:
    """97.63 ± 0.05, or the mean alone."""
    return f"{mean:.2f}" if sd is None else f"{mean:.2f} {sign} {sd:.2f}"


def plain(value: float) -> str:
    """Three significant digits: 94,500,000, 5.5, 0.0035; with a power of ten if there are too many zeros."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if abs(value) >= TOO_LARGE:
        exponent = math.floor(math.log10(abs(value)))
        return f"{plain(value / 10**exponent)}·{power_of_ten(exponent)}"
    digits = 2 - math.floor(math.log10(abs(value)))
    text = f"{round(value, digits):,.{max(digits, 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def with_error(value: float, error: float) -> str:
    """1,850 ± 60: both rounded to the first digit of the error, to the second if that is a 1."""
    if not (error > 0 and math.isfinite(error) and math.isfinite(value)):
        return plain(value)
    if (largest := max(abs(value), error)) >= TOO_LARGE:
        exponent = math.floor(math.log10(largest))
        return f"({with_error(value / 10**exponent, error / 10**exponent)})·{power_of_ten(exponent)}"
    exponent = math.floor(math.log10(error))
    digits = (1 if error / 10**exponent < 2 else 0) - exponent
    return " ± ".join(f"{round(number, digits) + 0.0:,.{max(digits, 0)}f}" for number in (value, error))


def power_of_ten(exponent: int) -> str:
    """5 -> 10⁵."""
    return "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def as_csv(rows: Sequence[dict[str, Any]]) -> str:
    """The rows of a JSON file as CSV; lists become words separated by spaces, None an empty cell."""
    cells = ([" ".join(map(str, v)) if isinstance(v, list) else v for v in row.values()] for row in rows)
    return csv_text(list(rows[0]), cells) if rows else ""


def listed(words: Sequence[str]) -> str:
    """One, two and three."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))
