"""The notebook runs from its first cell to its last, and shows what it says."""

from __future__ import annotations

import json
from typing import Any

import matplotlib as mpl
import pytest
import torch

from tests.environment import ROOT

NOTEBOOK = ROOT / "releg" / "examples" / "quickstart.ipynb"


@pytest.mark.long
def test_the_notebook_runs_and_shows_what_it_says() -> None:
    """Its cells are plain Python, so no Jupyter is needed."""
    cells = [cell for cell in json.loads(NOTEBOOK.read_bytes())["cells"] if cell["cell_type"] == "code"]
    assert [cell["outputs"] for cell in cells] == [[]] * len(cells), "clear the outputs"
    names: dict[str, Any] = {"__name__": "quickstart"}
    with torch.random.fork_rng(), mpl.rc_context({"backend": "agg"}):
        for cell in cells:
            exec(compile("".join(cell["source"]), str(NOTEBOOK), "exec"), names)
    assert list(names["variances"]) == ["likelihood_ratio", "leave_one_out", "disarm", "common_random_numbers"]
    variances = list(names["variances"].values())
    assert variances == sorted(variances, reverse=True)
    start = sum(names["deep"][:20]) / 20
    assert sum(names["deep"][-20:]) / 20 < start - 5
    ends = {name: sum(bounds[-20:]) / 20 for name, (_, bounds) in names["runs"].items()}
    assert ends["common_random_numbers"] + 2 < min(ends["disarm"], ends["leave_one_out"])
    assert max(ends["disarm"], ends["leave_one_out"]) + 1 < ends["likelihood_ratio"]
