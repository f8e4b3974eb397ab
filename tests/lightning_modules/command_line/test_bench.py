"""releg bench itself, on nets so small that it takes seconds. No claim about any time: the machine may be busy."""

import json
from pathlib import Path
from typing import Any

import pytest

from lightning_modules import cli
from lightning_modules.bench import graph_breaks, tables
from lightning_modules.bench.steps import CONFIGS, ways_here
from lightning_modules.bench.trainer import TRAINER

pytestmark = pytest.mark.long  # it compiles the steps
# One thread: on a busy machine, several wait for each other. All nets are the same one, which is compiled once
TINY = ["--architectures", "3-3", "--rounds", "2", "--steps", "2", "--threads", "1", "--units", "3", "--depths", "2"]
TRACED = ["likelihood_ratio", "pruned"]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bench") / "results"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "UNITS", 3)
        patch.setattr(graph_breaks, "shipped_names", lambda: TRACED)
        assert cli.main(["bench", *TINY, "--output", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def document(results: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((results / "bench.json").read_bytes())
    return found


def test_there_is_a_row_for_each_estimator_and_way(document: dict[str, Any]) -> None:
    keys = [(row["architecture"], row["threads"], row["estimator"], row["way"]) for row in document["steps"]]
    assert keys == [("3-3", 1, name, way) for name in CONFIGS for way in [*ways_here("cpu"), TRAINER]]
    for row in document["steps"]:
        assert row["weights"] == "initial"
        assert all(value > 0 for value in row["ms"])
        assert row["way"] != "floor" or row["ratio_to"]["floor"] == [1, 1, 1]
        assert (row["way"], row["estimator"]) != ("jax", "lr") or row["ratio_to"]["jax"] == [1, 1, 1]


def test_growth_is_measured_and_what_stays_python_is_named(document: dict[str, Any]) -> None:
    sizes = [(row["study"], row["units"], row["depth"], row["estimator"]) for row in document["growth"]]
    assert sizes == [(study, 3, 2, name) for study in ("units", "depth") for name in CONFIGS]
    breaks = [(row["estimator"], row["graphs"] > 1, row["breaks"]) for row in document["graph_breaks"]]
    assert breaks == [("likelihood_ratio", False, []), ("pruned", True, ["kept_differences"])]
    assert document["run"]["batch_size"] == 100


def test_page_and_plot_are_written(results: Path) -> None:
    assert "| 3-3 | initial | 1 | CRN |" in (results / "bench.md").read_text()
    assert sorted(path.name for path in results.iterdir()) == ["bench.json", "bench.md", "bench.png"]
