"""releg bench itself, on nets so small that it takes seconds. No claim about any time: the machine may be busy."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_modules import cli
from lightning_modules.bench.overhead import FIT_ARGUMENTS
from lightning_modules.bench.steps import SCALABLE, available
from lightning_modules.command_line import bench

TINY = [
    *("--quick", "--architectures", "4-3", "--rounds", "2", "--train-steps", "2", "--threads", "2"),
    *("--units", "3", "6", "--depths", "1", "--overhead-steps", "5", "--batch-size", "20"),
]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bench") / "results"
    assert cli.main(["bench", *TINY, "--output", str(folder)]) == 0
    return folder


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def test_there_is_one_row_per_architecture_weights_estimator_threads_and_way(results: Path) -> None:
    """With one thread, LR and CRN only."""
    rows = read(results / "bench.json")
    keys = [(row["architecture"], row["weights"], row["estimator"], row["threads"], row["via"]) for row in rows]
    few = available(tuple(FIT_ARGUMENTS))
    ways = {(2, "bare"): available(), (2, "trainer"): few, (1, "bare"): few, (1, "trainer"): few}
    expected = {("4-3", w, e, *way) for w in ("initial", "trained") for way, names in ways.items() for e in names}
    assert len(keys) == len(expected)
    assert set(keys) == expected


def test_rows_have_times_ratios_and_memory(results: Path) -> None:
    for row in read(results / "bench.json"):
        assert row["ms_per_step"] > 0
        assert row["ratio_to_lr"] > 0
        assert row["ratio_to_floor"] > 0
        assert row["floor_ms"] > 0
        assert row["peak_mib"] is None or row["peak_mib"] >= 0
        assert row["trained_steps"] == (0 if row["weights"] == "initial" else 2)
        assert (row["batch_size"], row["seed"]) == (20, 0)
        assert row["estimator"] != "lr" or row["ratio_to_lr"] == 1
        assert sum(row["ms_parts"].values()) <= 1.5 * row["ms_per_step"] + 1  # medians of parts, not parts of a median


def test_growth_and_overhead_stand_in_a_file_of_their_own(results: Path) -> None:
    studies = read(results / "bench_studies.json")
    sizes = {(row["study"], row["units"], row["depth"]) for row in studies["scaling"]}
    assert sizes == {("units", 3, 2), ("units", 6, 2), ("depth", 200, 1)}
    assert {row["estimator"] for row in studies["scaling"]} == set(available(SCALABLE))
    assert {(row["study"], row["estimator"]) for row in studies["exponents"]} == {
        ("units", name) for name in available(SCALABLE)
    }
    assert {row["estimator"] for row in studies["overhead"]} == set(available(tuple(FIT_ARGUMENTS)))
    for row in studies["overhead"]:
        assert row["bare_steps_per_second"] > 0
        assert row["trainer_steps_per_second"] > 0
    assert studies["run"]["threads"] == 2
    assert studies["run"]["train_steps"] == 2


def test_page_and_plot_are_written(results: Path) -> None:
    text = (results / "bench.md").read_text()
    assert "SBN(4-3)" in text
    assert "Overhead of the Trainer" in text
    assert (results / "bench.png").is_file()
    assert sorted(path.name for path in results.iterdir()) == [
        "bench.json",
        "bench.md",
        "bench.png",
        "bench_studies.json",
    ]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--architectures", "200x200"], "got '200x200', expected units per layer joined by hyphens, deepest first;"),
        (["--architectures", "200-0"], "got '200-0', expected units per layer joined by hyphens"),
        (["--threads", "0"], "got '0', expected a whole number of at least 1"),
        (["--batch-size", "60000"], "batch_size is 60000, expected a whole number from 1 to 50,000;"),
        (["--rounds", "many"], "got 'many', expected a whole number of at least 1"),
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


def test_architectures_are_read_deepest_first() -> None:
    assert bench.architecture("32-64-128-256") == (256, 128, 64, 32)
