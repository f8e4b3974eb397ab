"""releg bench itself, on nets so small that it takes seconds. No claim about any time: the machine may be busy."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_modules import cli
from lightning_modules.bench.graph_breaks import row_of
from lightning_modules.bench.steps import CONFIGS, ways_here
from lightning_modules.bench.trainer import TRAINER
from lightning_modules.shipped_estimators import shipped_names

TINY = ["--architectures", "4-3", "--rounds", "2", "--steps", "2", "--threads", "1", "2", "--units", "3"]
TINY += ["--depths", "1"]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bench") / "results"
    assert cli.main(["bench", *TINY, "--output", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def document(results: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((results / "bench.json").read_bytes())
    return found


@pytest.mark.long  # it compiles the steps
def test_there_is_a_row_for_each_estimator_way_and_number_of_threads(document: dict[str, Any]) -> None:
    keys = [(row["architecture"], row["threads"], row["estimator"], row["way"]) for row in document["steps"]]
    ways = [*ways_here("cpu"), TRAINER]
    assert keys == [("4-3", threads, name, way) for threads in (1, 2) for name in CONFIGS for way in ways]
    for row in document["steps"]:
        assert row["weights"] == "initial"
        assert all(value > 0 for value in row["ms"])
        assert row["way"] != "floor" or row["ratio_to"]["floor"] == [1, 1, 1]
        assert (row["way"], row["estimator"]) != ("jax", "lr") or row["ratio_to"]["jax"] == [1, 1, 1]


@pytest.mark.long
def test_growth_and_graph_breaks_are_measured(document: dict[str, Any]) -> None:
    sizes = [(row["study"], row["units"], row["depth"], row["estimator"]) for row in document["growth"]]
    expected = [("units", 3, 2), ("depth", 200, 1)]
    assert sizes == [(*size, name) for size in expected for name in CONFIGS]
    assert [row["estimator"] for row in document["graph_breaks"]] == shipped_names()
    assert document["run"]["batch_size"] == 100


@pytest.mark.long
def test_page_and_plot_are_written(results: Path) -> None:
    assert "| 4-3 | initial | 2 | CRN |" in (results / "bench.md").read_text()
    assert sorted(path.name for path in results.iterdir()) == ["bench.json", "bench.md", "bench.png"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["--architectures", "200x200"],
            "argument --architectures: invalid layers_of value: '200x200'; see releg bench --help",
        ),
        (["--threads", "0"], "got '0', expected a whole number of at least 1"),
        (["--no-such-option"], "unrecognized arguments: --no-such-option; see releg bench --help"),
        (["--output", "/dev/null/results"], "expected a folder that can be written"),
    ],
)
def test_bad_input_ends_in_one_sentence_and_exit_code_2(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["bench", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("releg: ")
    assert sentence in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "--device", "cuda"]) == 2
    assert "--device is cuda, but torch finds no GPU here, expected one; leave --device out" in capsys.readouterr().err


def test_what_stays_python_is_named() -> None:
    lr, pruned = (row_of(name) for name in ("likelihood_ratio", "pruned"))
    assert (lr["graphs"], lr["breaks"]) == (1, [])
    assert pruned["breaks"] == ["kept_differences"]
