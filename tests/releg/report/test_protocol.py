"""The page about the RODEO paper's protocol, from made-up curves."""

import json
from pathlib import Path
from typing import Any

import pytest

from releg.records.file_names import PROTOCOL_CURVES
from releg.report.protocol import write_protocol


def curve(estimator: str, end: float) -> dict[str, Any]:
    train = [[step, end - (20_000 - step) / 1000] for step in range(1000, 20_001, 1000)]
    bounds = {"val/elbo": end - 1, "test/multi_sample_bound": end + 3}
    names = {"estimator": estimator, "label": estimator.upper()}
    return {**names, "steps": 20_000, "train": train, **bounds, "minutes": 2.5, "commit": "c0ffee"}


def write(results: Path, content: str) -> str:
    (results / PROTOCOL_CURVES).parent.mkdir()
    (results / PROTOCOL_CURVES).write_text(content)
    return write_protocol(results)


def test_the_lowest_mean_training_bound_of_the_last_steps_comes_first(tmp_path: Path) -> None:
    page = write(tmp_path, json.dumps([curve("rodeo", -110.0), curve("common_random_numbers", -100.0)]))
    crn = page.index("| COMMON_RANDOM_NUMBERS | 20,000 | 102.00 | 101.00 | 97.00 | 2.5 |\n")
    assert crn < page.index("| RODEO | 20,000 | 112.00 |")
    assert page.endswith("Commits: c0ffee\n")


@pytest.mark.parametrize("content", ["", '[{"steps": 3}]'])
def test_damaged_curves_are_named(tmp_path: Path, content: str) -> None:
    with pytest.raises(ValueError, match=r"curves.json cannot be read \(.*\), expected"):
        write(tmp_path, content)
