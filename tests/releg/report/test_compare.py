"""compare.md and compare.png from numbers: names, readable figures, labels that cover nothing."""

import json
import random
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from lightning_modules.shipped_estimators import shipped_names
from releg.records.names import PUBLISHED
from releg.report import compare_plot
from releg.report.compare import bias, on_one_clock, write_compare
from releg.report.label_placement import Box, around, place, segments
from releg.report.tables import plain, with_error

Row = dict[str, Any]


def row(name: str, within: float = 100.0, ratio: float = 1.0, bias2: float = 0.0, **more: Any) -> Row:
    figures = {kind: {"value": within, "standard_error": within / 30} for kind in ("within", "total")}
    figures["bias2"] = {"value": bias2, "standard_error": 0.01}
    answer = {
        "estimator": name,
        "unbiased": True,
        "objective": "elbo",
        "evaluations": 401,
        "ms_per_step": 10 * ratio,
        "lr_ms_per_step": 10.0,
        "ratio_to_lr": ratio,
        "peak_mib": 12.0,
        "gradient2": 1.0,
        "num_images": 50,
        "samples_per_image": 100,
        "seconds": 3.0,
        **figures,
        "layers": [figures, figures],
    }
    return {**answer, **more}


def document(rows: list[Row]) -> Row:
    made = {"processor": "AMD", "cores": 2, "commit": "c0ffee"}
    return {
        "title": "SBN(4-3)",
        "command": "releg compare",
        "baseline_steps": 10,
        "own_baselines": False,
        "provenance": made,
        "rows": rows,
    }


def written(tmp_path: Path, rows: list[Row]) -> str:
    (tmp_path / "compare.json").write_text(json.dumps(document(rows)))
    return write_compare(tmp_path)


def test_every_shipped_estimator_has_the_name_of_its_paper() -> None:
    assert sorted(PUBLISHED) == shipped_names()
    assert PUBLISHED["mu_prop"] == "MuProp"
    assert PUBLISHED["rebar"] == "REBAR"


def test_numbers_are_readable_whatever_their_size(tmp_path: Path) -> None:
    powers = zip(range(-4, 10), shipped_names(), strict=False)
    rows = [row(name, within=10.0**power, ratio=1 + power**2 / 10) for power, name in powers]
    text = written(tmp_path, rows)
    assert not re.search(r"\de[+-]?\d", text)
    assert "| ARM |" in text


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
        (1.0, "1"),
        (0.0, "0"),
    ],
)
def test_a_number_without_error_has_three_digits(value: float, text: str) -> None:
    assert plain(value) == text


def test_the_ratio_of_lr_to_lr_is_one() -> None:
    clocked = on_one_clock([row("likelihood_ratio", ratio=1.05), row("arm", ratio=2.0)])
    assert [each["ratio_to_lr"] for each in clocked] == [1.0, 2.0]
    assert [each["ms_per_step"] for each in clocked] == [10.0, 20.0]


def test_a_bias_is_told_where_it_is_seen_bounded_where_not_and_left_out_where_nothing_can_be_said() -> None:
    assert bias(row("a", bias2=0.16)) == "40% (z = 16)"
    assert bias(row("a", bias2=0.01)) == "none detected, below 17%"
    assert bias(row("a", bias2=-0.01)) == "none detected, below 14%"
    assert bias(row("a", gradient2=1e-3)) == "varies too much to tell"
    assert bias(row("a", bias2=0.16, num_images=5)) == "too few images"
    assert bias(row("a", bias2=0.16, objective="multi_sample")) == "climbs another bound"


def crowd(seed: int) -> list[Row]:
    """All shipped estimators, most of them near each other."""
    generator = random.Random(seed)
    return [
        row(name, within=1e5 * 10 ** generator.gauss(0, 0.7), ratio=10 ** generator.gauss(0.1, 0.2))
        for name in shipped_names()
    ]


@pytest.mark.parametrize("seed", range(4))
def test_names_cover_neither_points_nor_the_front_nor_each_other(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    placed: list[list[Box | None]] = []
    original = compare_plot.annotate
    monkeypatch.setattr(compare_plot, "annotate", lambda *given: placed.append(original(*given)))
    rows = crowd(seed)
    figure = compare_plot.draw(rows, "SBN(200-200)")
    (boxes,) = placed
    panel = figure.axes[0]
    points = [panel.transData.transform((each["ms_per_step"], each["within"]["value"])) for each in rows]
    corners: list[tuple[float, float]] = []
    for each in compare_plot.front(rows):
        x, y = panel.transData.transform((each["ms_per_step"], each["within"]["value"]))
        corners += [(x, corners[-1][1]), (x, y)] if corners else [(x, y)]
    names = [box for box in boxes if box is not None]
    assert len(names) == len(rows)
    for name in names:
        assert not any(name.meets(around(tuple(point))) for point in points)
        assert not any(name.meets(part) for part in segments(corners))
    assert not any(one.meets(other) for one, other in combinations(names, 2))


def test_a_name_is_clearly_nearest_to_its_own_point() -> None:
    """To the right of the first point there is room, but the name would end beside the second."""
    points = [(100.0, 100.0), (140.0, 100.0)]
    boxes = place(points, [(20, 8), (20, 8)], [], Box(0, 0, 300, 200))
    for box, own, other in zip(boxes, points, reversed(points), strict=True):
        assert box is not None
        assert 2 * box.distance(own) <= box.distance(other)


def test_a_name_that_finds_no_room_is_not_moved_onto_another() -> None:
    frame = Box(0, 0, 60, 30)
    boxes = place([(10, 15), (20, 15)], [(40, 10), (40, 10)], [], frame)
    assert sum(box is not None for box in boxes) < 2
    free = place([(10, 15)], [(40, 10)], [], frame)
    assert free[0] is not None


def test_the_same_numbers_make_the_same_bytes(tmp_path: Path) -> None:
    written(tmp_path, crowd(0))
    first = (tmp_path / "compare.png").read_bytes()
    written(tmp_path, crowd(0))
    assert (tmp_path / "compare.png").read_bytes() == first


@pytest.mark.parametrize("own", [True, False])
def test_the_page_says_whose_baselines_came_from_the_run(own: bool, tmp_path: Path) -> None:
    made = document([row("likelihood_ratio"), row("mu_prop", 80.0, 1.5)]) | {"own_baselines": own}
    (tmp_path / "compare.json").write_text(json.dumps(made))
    write_compare(tmp_path)
    page = (tmp_path / "compare.md").read_text()
    assert ("except those of the estimator that trained the run" in page) == own
