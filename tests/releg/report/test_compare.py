"""compare.md and compare.png from made-up numbers."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from lightning_modules.shipped_estimators import shipped_names
from releg.report.compare import bias, draw, front, on_one_clock, write_compare

Row = dict[str, Any]


def row(name: str, within: float = 100.0, ratio: float = 1.0, bias2: float = 0.0, **more: Any) -> Row:
    figures = {kind: {"value": within, "standard_error": within / 30} for kind in ("within", "total")}
    figures["bias2"] = {"value": bias2, "standard_error": 0.01}
    times = {"ms_per_step": 10 * ratio, "lr_ms_per_step": 10.0, "ratio_to_lr": ratio, "seconds": 3.0}
    names = {"estimator": name, "label": name.upper(), "unbiased": True, "objective": "elbo"}
    answer = {**names, "evaluations": 401, "gradient2": 1.0}
    return {**answer, **times, "num_images": 50, "samples_per_image": 100, **figures, "layers": [figures] * 2, **more}


def write(tmp_path: Path, rows: list[Row]) -> str:
    made = {"provenance": {"processor": "AMD", "cores": 2, "commit": "c0ffee"}, "own_baselines": True}
    document = {"title": "SBN(4-3)", "command": "releg compare", "baseline_steps": 10, "rows": rows, **made}
    (tmp_path / "compare.json").write_text(json.dumps(document))
    return write_compare(tmp_path)


def test_the_least_variance_times_cost_comes_first(tmp_path: Path) -> None:
    page = write(tmp_path, [row("arm", 90.0, 2.0), row("likelihood_ratio", 100.0), row("disarm", 50.0, 1.5)])
    table = page.split("| --- |")[0] + page.split("![")[0]
    assert table.index("| 1 | DISARM |") < table.index("| 2 | LIKELIHOOD_RATIO |") < table.index("| 3 | ARM |")
    assert "| 1 | DISARM | 50.0 ± 1.7 | 50.0 ± 1.7 | below 14% | 401 | 15.0 | 1.50 | 750 | 1.33 |" in table
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
    assert [each["estimator"] for each in front(rows)] == ["lr", "disarm"]


def test_every_point_of_the_figure_has_the_number_of_its_name() -> None:
    figure = draw([row(name, within=10.0 + place) for place, name in enumerate(shipped_names())])
    numbers = [text.get_text() for text in figure.axes[0].texts]
    names = [text.get_text().split("  ")[0] for text in figure.legends[0].get_texts()]
    assert numbers == names == [str(place) for place in range(1, len(shipped_names()) + 1)]


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "compare.json").write_text('{"rows": [{}]}')
    with pytest.raises(ValueError, match=r"compare.json cannot be read \(.*\), expected"):
        write_compare(tmp_path)
