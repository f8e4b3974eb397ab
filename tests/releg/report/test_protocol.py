"""What a page says of the RODEO paper's protocol, from made-up curves."""

import json
from pathlib import Path
from typing import Any

from releg.records.file_names import PROTOCOL_CURVES
from releg.report.protocol import section


def curve(estimator: str, end: float, **more: Any) -> dict[str, Any]:
    train = [[step, end - (20_000 - step) / 1000] for step in range(1000, 20_001, 1000)]
    bounds = {"val/elbo": end - 1, "test/elbo": end + 1, "test/multi_sample_bound": end + 3}
    names = {"estimator": estimator, "label": estimator.upper()}
    return {**names, "steps": 20_000, "train": train, **bounds, "minutes": 2.5, "commit": "c0ffee", **more}


def table(results: Path, content: str) -> str:
    (results / PROTOCOL_CURVES).parent.mkdir()
    (results / PROTOCOL_CURVES).write_text(content)
    return "\n".join(section(results))


def test_longer_runs_come_first_then_the_lowest_training_bounds_and_none_of_a_run_under_way(tmp_path: Path) -> None:
    unfinished = {"unfinished": True, "test/elbo": None, "test/multi_sample_bound": None, "steps": 1_000_000}
    curves = [curve("rodeo", -110.0), curve("common_random_numbers", -100.0), curve("disarm", -120.0, **unfinished)]
    page = table(tmp_path, json.dumps(curves))
    disarm = page.index("| DISARM | unfinished: 20,000 of 1,000,000 | 122.00 | 121.00 | – | – | 2.5 |\n")
    crn = page.index("| COMMON_RANDOM_NUMBERS | 20,000 | 102.00 | 101.00 | 99.00 | 97.00 | 2.5 |\n")
    assert disarm < crn < page.index("| RODEO | 20,000 | 112.00 |")
    assert page.endswith("Commits: c0ffee")
