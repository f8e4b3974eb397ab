"""The gradient variance on all training images, at the end of the LR run."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from lightning_modules.grid import figure1_measurement
from lightning_modules.grid.figure1_measurement import measure_variance, measures_at_the_end
from lightning_modules.grid.options import parse_options
from releg.architecture import layers_of
from releg.naming.csv_formats import VARIANCE_COLUMNS, csv_text
from releg.report.figure1_data import measurement_file, read_measured


def run_of(results: Path, seed: int, digest: str, architecture: str = "32-64-128-256", here: bool = True) -> Any:
    """An entry of runs.json, and the checkpoint of the run if its folder is here."""
    folder = f"runs/{architecture}/{seed}"
    if here:
        (results / folder).mkdir(parents=True, exist_ok=True)
        (results / folder / "best.ckpt").touch()
    config = {"model.layers": layers_of(architecture), "seed_everything": seed}
    return {"folder": folder, "estimator": "lr", "config": config, "digest": digest}


def record(results: Path, *entries: Any) -> None:
    (results / "runs.json").write_text(json.dumps({"runs": entries}))


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The checkpoints that `releg variance` was called with; it writes what it would."""
    checkpoints: list[str] = []

    def run(words: list[str], **_: object) -> "subprocess.CompletedProcess[str]":
        given = dict(zip(words[4::2], words[5::2], strict=True))
        checkpoints.append(str(Path(given["--ckpt"]).relative_to(tmp_path)))
        row = (200_000, "likelihood_ratio", 1, "total", 2.0, 0.1, given["--num-images"], given["--samples-per-image"])
        Path(given["--output"]).write_text(csv_text(VARIANCE_COLUMNS, [row]))
        Path(given["--output"]).with_suffix(".json").write_text(json.dumps({"commit": "beef"}))
        return subprocess.CompletedProcess(words, 0)

    monkeypatch.setattr(figure1_measurement.subprocess, "run", run)
    return checkpoints


def test_the_run_with_the_lowest_seed_is_measured_once(tmp_path: Path, measured: list[str]) -> None:
    first = run_of(tmp_path, 0, "a")
    record(tmp_path, run_of(tmp_path, 1, "b"), first, run_of(tmp_path, 0, "c", "200-200"))
    measure_variance(tmp_path, jobs=2)
    assert measured == ["runs/32-64-128-256/0/best.ckpt"]
    assert read_measured(measurement_file(tmp_path, "lr")) == {"commit": "beef", "run": "a"}
    record(tmp_path, run_of(tmp_path, 1, "d"), run_of(tmp_path, 2, "e"), first)  # other seeds were trained
    measure_variance(tmp_path, jobs=2)
    assert len(measured) == 1


def test_a_run_that_was_trained_again_is_measured_again(tmp_path: Path, measured: list[str]) -> None:
    for number, digest in enumerate("ab", start=1):
        record(tmp_path, run_of(tmp_path, 0, digest))
        measure_variance(tmp_path, jobs=2)
        assert len(measured) == number


def test_fewer_images_than_all_are_not_enough(tmp_path: Path, measured: list[str]) -> None:
    record(tmp_path, run_of(tmp_path, 0, "a"))
    measure_variance(tmp_path, jobs=2)
    output = measurement_file(tmp_path, "lr")
    output.write_text(output.read_text().replace(",50000,", ",100,"))
    measure_variance(tmp_path, jobs=2)
    assert len(measured) == 2


def test_nothing_is_measured_where_the_run_with_its_baselines_is_not(tmp_path: Path, measured: list[str]) -> None:
    record(tmp_path, run_of(tmp_path, 0, "a", here=False), run_of(tmp_path, 1, "b"))
    measure_variance(tmp_path, jobs=2)
    record(tmp_path, run_of(tmp_path, 0, "c", "200-200"))
    measure_variance(tmp_path, jobs=2)
    assert not measured


def test_a_measurement_that_fails_ends_in_a_sentence(tmp_path: Path) -> None:
    record(tmp_path, run_of(tmp_path, 0, "a"))
    with pytest.raises(ValueError, match=r"was not measured \(exit code 2\); the same command continues it"):
        measure_variance(tmp_path, jobs=1)  # the checkpoint is empty


@pytest.mark.parametrize(
    ("words", "measures"),
    [
        (["--budget", "standard"], True),
        (["--budget", "standard", "--only", "32-64-128-256,lr"], True),
        (["--budget", "standard", "--only", "200-200"], False),
        (["--budget", "standard", "--report"], False),
        (["--budget", "converged"], False),
        ([], False),
    ],
)
def test_only_what_trains_this_cell_of_the_published_table_ends_with_the_measurement(
    words: list[str], measures: bool
) -> None:
    assert measures_at_the_end(parse_options(words)) is measures
