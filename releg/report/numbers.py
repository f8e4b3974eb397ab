"""How numbers are written on pages and in figures."""

from __future__ import annotations

import math
from collections.abc import Iterable

TOO_LARGE = 1e8  # to be read without counting zeros


def nats(value: float) -> str:
    """97.63."""
    return f"{value:.2f}"


def signed(value: float) -> str:
    """+2.24."""
    return f"{value:+.2f}"


def count(value: int) -> str:
    """200,000."""
    return f"{value:,}"


def one_decimal(value: float) -> str:
    """14.2."""
    return f"{value:.1f}"


def plus_minus(mean: float, sd: float | None) -> str:
    """97.63 ± 0.05, or the mean alone."""
    return nats(mean) if sd is None else f"{nats(mean)} ± {nats(sd)}"


def distinct(values: Iterable[object]) -> str:
    """Each value once, in order of appearance: 0, 1, 2."""
    return ", ".join(dict.fromkeys(map(str, values)))


def short_count(value: float, _: int | None = None) -> str:
    """200k, 1M; also for the axes of a figure, whose second argument is a position."""
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


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
