"""compare.md and compare.png from made-up numbers."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from lightning_modules.shipped_estimators import shipped_names
from releg.report.compare import bias, draw, front, on_one_clock, paired_ratio, write_compare

Row = dict[str, Any]


def row(name: str, within: float = 100.0, ratio: float = 1.0, bias2: float = 0.0, **more: Any) -> Row:
    figures = {kind: {"value": within, "standard_error": within / 30} for kind in ("within", "total")}
    figures["bias2"] = {"value": bias2, "standard_error": 0.01}
    times = {"ms_per_step": 10 * ratio, "lr_ms_per_step": 10.0, "ratio_to_lr": ratio, "seconds": 3.0}
    names = {"estimator": name, "label": name.upper(), "unbiased": True, "objective": "elbo"}
    answer = {**names, "evaluations": 401, "gradient2": 1.0}
    amounts = {"num_images": 50, "samples_per_image": 100, "within_by_image": [[within] * 3] * 2}
    return {**answer, **times, **amounts, **figures, "layers": [figures] * 2, **more}


def write(tmp_path: Path, *tables: list[Row]) -> str:
    made = {"provenance": {"processor": "AMD", "cores": 2, "commit": "c0ffee"}, "own_baselines": True}
    titles = {"command": "releg compare", "baseline_steps": 10, **made}
    documents = [{"weights": f"w{n}", "title": f"SBN({n})", "rows": t, **titles} for n, t in enumerate(tables)]
    (tmp_path / "compare.json").write_text(json.dumps(documents))
    return write_compare(tmp_path)


def test_the_least_variance_times_cost_comes_first(tmp_path: Path) -> None:
    page = write(tmp_path, [row("arm", 90.0, 2.0), row("likelihood_ratio", 100.0), row("disarm", 50.0, 1.5)])
    assert page.index("| 1 | DISARM |") < page.index("| 2 | LIKELIHOOD_RATIO |") < page.index("| 3 | ARM |")
    assert "| 1 | DISARM | 50.0 ± 1.7 | 50.0 ± 1.7 | below 14% | 401 | 15.0 | 1.50 | 750 | 1.33 |" in page
    assert "came with it: yes" in page
    assert "- commit: c0ffee\n- machine: AMD, 2 cores\n" in page


def test_numbers_are_readable_whatever_their_size(tmp_path: Path) -> None:
    powers = zip(range(-4, 10), shipped_names(), strict=False)
    page = write(tmp_path, [row(name, within=10.0**power, ratio=1 + power**2 / 10) for power, name in powers])
    assert not re.search(r"\de[+-]?\d", page)


def test_the_ratio_of_lr_to_lr_is_one() -> None:
    clocked = on_one_clock([row("likelihood_ratio", ratio=1.05), row("arm", ratio=2.0)])
    assert [(each["ratio_to_lr"], each["ms_per_step"]) for each in clocked] == [(1.0, 10.0), (2.0, 20.0)]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"bias2": 0.16}, "40% (z = 16)"),
        ({"bias2": 0.01}, "below 17%"),
        ({"bias2": -0.01}, "below 14%"),
        ({"gradient2": 1e-3}, None),  # it varies too much to tell
        ({"bias2": 0.16, "objective": "multi_sample"}, None),  # another bound
    ],
)
def test_a_bias_is_told_where_it_is_seen_and_bounded_where_not(given: dict[str, Any], shown: str | None) -> None:
    assert bias(row("a", **given)) == shown


def test_the_front_has_only_unbiased_estimators_none_of_which_is_beaten() -> None:
    rows = [row("arm", 50.0, 2.0), row("disarm", 40.0, 1.5), row("lr", 90.0), row("reinmax", 1.0, unbiased=False)]
    rows.append(row("vimco", 1.0, objective="multi_sample"))
    assert [each["estimator"] for each in front(rows)] == ["lr", "disarm"]


def test_every_point_of_the_figure_has_the_number_of_its_name() -> None:
    rows = [row(name, within=10.0 + place) for place, name in enumerate(shipped_names())]
    number = {name: str(place) for place, name in enumerate(shipped_names(), start=1)}
    figure = draw({"one": rows, "other": rows[::-1]}, number)
    one, other = ([text.get_text() for text in panel.texts] for panel in figure.axes)
    names = [text.get_text().split("  ")[0] for text in figure.legends[0].get_texts()]
    assert one == other[::-1] == names == list(number.values())


def test_a_number_means_the_same_estimator_in_every_table(tmp_path: Path) -> None:
    page = write(
        tmp_path, [row("arm", 5.0), row("likelihood_ratio", 9.0)], [row("likelihood_ratio", 1.0), row("arm", 5.0)]
    )
    assert page.index("## SBN(0)") < page.index("| 1 | ARM |") < page.index("| 2 | LIKELIHOOD_RATIO |")
    second = page.split("## SBN(1)")[1]
    assert second.index("| 2 | LIKELIHOOD_RATIO |") < second.index("| 1 | ARM |")


def test_siblings_and_disarm_are_paired_by_image(tmp_path: Path) -> None:
    more, less = [[2.0, 4.0, 6.0], [1.0, 2.0, 9.0]], [[1.0, 2.0, 3.0], [2.0, 2.0, 2.0]]
    rows = [row("sibling_leave_one_out", within_by_image=more), row("disarm", ratio=2.0, within_by_image=less)]
    assert paired_ratio(rows[0], rows[1], 0) == (2.0, 0.0)  # the images differ, their ratio does not
    ratio, error = paired_ratio(rows[0], rows[1], 1)
    assert (ratio, error) == pytest.approx((2.0, 4.3589 / 3**0.5 / 2), rel=1e-4)  # the deviations are -3, -2 and 5
    assert "| SIBLING_LEAVE_ONE_OUT / DISARM | 2 | 2.0 ± 1.3 |" in write(tmp_path, rows)
