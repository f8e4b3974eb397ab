"""The page about the trials, from made-up bounds."""

import json
from pathlib import Path
from typing import Any

from releg.records.file_names import TRIALS
from releg.report.recipe import write_recipe


def trial(estimator: str, rate: float, nll: float, steps: int = 200, **more: Any) -> dict[str, Any]:
    known: dict[str, Any] = {"architecture": "200-200", "estimator": estimator, "rate": rate, "steps": steps}
    known |= {"shape": "linear", "warmup": 0, "binarization": "dynamic"}
    return {**known, "val/elbo": -nll, "best_step": steps, "minutes": 1.0, "commit": "c0ffee; beef", **more}


def write(results: Path, content: str) -> str:
    (results / TRIALS).parent.mkdir(parents=True, exist_ok=True)
    (results / TRIALS).write_text(content)
    return write_recipe(results)


def test_there_is_a_table_per_net_and_length_with_the_lowest_bound_of_each_estimator_first(tmp_path: Path) -> None:
    other = trial("crn", 0.003, 99.0, architecture="200-200-200", warmup=40)
    fixed = trial("crn", 0.001, 109.0, binarization="fixed")
    page = write(tmp_path, json.dumps([trial("lr", 0.001, 120.0), fixed, trial("crn", 0.01, 108.25), other]))
    first, second = page.split("## SBN(")[1:]
    assert [line.split(" | ")[:6] for line in first.splitlines() if line.startswith("| ")][2:] == [
        ["| CRN", "redrawn", "linear", "0.01", "0", "108.25"],
        ["| CRN", "drawn once", "linear", "0.001", "0", "109.00"],
        ["| LR", "redrawn", "linear", "0.001", "0", "120.00"],
    ]
    assert second.startswith("200-200-200), 200 steps")
    assert "| 0.003 | 40 | 99.00 | 200 |" in second
    assert page.endswith("Commits: c0ffee, beef\n")
