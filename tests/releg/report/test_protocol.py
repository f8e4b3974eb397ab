"""The page about the RODEO paper's protocol, from made-up curves."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from releg.records.file_names import PROTOCOL_CURVES
from releg.report.protocol import draw, last_bound, write_protocol


def entry(estimator: str, end: float) -> dict[str, Any]:
    train = [[step, end - (20_000 - step) / 1000] for step in range(1000, 20_001, 1000)]
    bounds = {"val/elbo": end - 1, "test/multi_sample_bound": end + 3}
    return {"estimator": estimator, "steps": 20_000, "train": train, **bounds, "minutes": 2.5, "commit": "c0ffee"}


def write(results: Path, content: str) -> Path:
    (results / PROTOCOL_CURVES).parent.mkdir()
    (results / PROTOCOL_CURVES).write_text(content)
    return results


def test_the_page_ranks_by_the_training_bound_and_says_that_nothing_has_converged(tmp_path: Path) -> None:
    page, picture = write_protocol(
        write(tmp_path, json.dumps([entry("rodeo", -110.0), entry("common_random_numbers", -100.0)]))
    )
    text = page.read_text()
    assert text.index("| CRN | 102.00 | 101.00 | 97.00 |\n") < text.index("| RODEO | 112.00 |")
    assert "**Not converged**: 20,000 steps, where" in text
    assert "train 1,000,000" in text
    assert "c0ffee" in text
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_training_bound_is_the_mean_of_the_last_steps() -> None:
    assert last_bound(entry("rodeo", -100.0)) == pytest.approx(-102.0)


def test_the_figure_has_a_line_per_estimator_the_best_named_first() -> None:
    (panel,) = draw([entry("rodeo", -110.0), entry("disarm", -105.0)]).axes
    assert panel.get_ylabel() == "training elbo (nats per image), higher is better"
    legend = panel.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["DisARM", "RODEO"]
    assert [np.size(line.get_xdata()) for line in panel.lines] == [20, 20]


def test_without_runs_there_is_no_page(tmp_path: Path) -> None:
    assert write_protocol(tmp_path) == []


@pytest.mark.parametrize("content", ["", "[]", '[{"steps": 3}]'])
def test_damaged_curves_are_named(tmp_path: Path, content: str) -> None:
    with pytest.raises(ValueError, match=r"curves.json cannot be read \(.*\), expected"):
        write_protocol(write(tmp_path, content))
