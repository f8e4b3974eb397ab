"""Tables as text, and how numbers are written."""

import pytest

from releg.report.numbers import plain, power_of_ten, short_count, with_error
from releg.report.page import Column, made_by, markdown
from tests.releg.report.synthetic import PROVENANCE

ROWS = [("CRN", -0.5), ("LR", None)]
COLUMNS: list[Column[tuple[str, float | None]]] = [
    Column("estimator", lambda row: row[0], is_text=True),
    Column("ours ± sd", lambda row: None if row[1] is None else f"{row[1]:+.2f}"),
]


def test_a_table_in_markdown_aligns_numbers_to_the_right_and_leaves_unknown_cells_empty() -> None:
    assert markdown(COLUMNS, ROWS) == "| estimator | ours ± sd |\n| --- | ---: |\n| CRN | -0.50 |\n| LR |  |"
    assert markdown(COLUMNS, []) == ""


def test_what_made_the_numbers_is_said_once() -> None:
    changed = {**PROVENANCE, "uncommitted_changes": True}
    assert made_by([PROVENANCE, changed, PROVENANCE]).splitlines() == [
        "- commit: c0ffee; c0ffee with uncommitted changes",
        "- machine: A CPU, 2 cores",
        "- Python: 3.11.7",
        "- packages: torch 2.15.0",
        "- data: SHA-256 abcd",
    ]
    assert made_by([{}]) == "- commit: unknown\n- machine: an unknown processor, unknown cores"


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (1853.4, 61.2, "1,850 ± 60"),
        (94512345.0, 2.1e6, "95,000,000 ± 2,000,000"),
        (4.3712, 0.154, "4.37 ± 0.15"),
        (-0.00106, 0.000312, "-0.0011 ± 0.0003"),
        (0.0001, 0.3, "0.0 ± 0.3"),
        (-0.0001, 0.3, "0.0 ± 0.3"),
        (12.0, 0.0, "12"),
        (0.996, 0.0996, "1.00 ± 0.10"),
        (3.1e8, 2.9e8, "(3 ± 3)·10⁸"),
        (float("nan"), 1.0, "nan"),
    ],
)
def test_a_number_has_the_digits_that_its_error_leaves(value: float, error: float, text: str) -> None:
    assert with_error(value, error) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (72345678.9, "72,300,000"),
        (723456789.0, "7.23·10⁸"),
        (-2e44, "-2·10⁴⁴"),
        (104.6, "105"),
        (5.504, "5.5"),
        (0.003378, "0.00338"),
        (0.0, "0"),
    ],
)
def test_a_number_without_error_has_three_digits(value: float, text: str) -> None:
    assert plain(value) == text


def test_steps_on_an_axis_are_short() -> None:
    assert [short_count(steps) for steps in (10, 2_500, 200_000, 1_000_000)] == ["10", "2.5k", "200k", "1M"]
    assert power_of_ten(-12) == "10⁻¹²"
