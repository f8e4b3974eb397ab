"""The gradient variance on all training images, at the end of the LR run."""

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lightning_modules.grid import figure1_measurement
from lightning_modules.grid.figure1_measurement import measure_variance, measures_at_the_end
from lightning_modules.grid.options import parse_options
from lightning_modules.run.result import write_result
from releg.architecture import layers_of
from releg.records.csv_formats import VARIANCE_COLUMNS, csv_text
from releg.records.runs import trained
from releg.report.curves import measurement_file, read_measured
from tests.lightning_modules.run_states import RESULT


def run_of(results: Path, seed: int, architecture: str = "32-64-128-256", here: bool = True, minutes: int = 1) -> Any:
    """An entry of runs.json, and what the run left behind if its folder is here."""
    folder = results / "runs" / architecture / str(seed)
    result = RESULT | {"training_seconds": 60.0 * minutes}
    if here:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "best.ckpt").touch()
        write_result(folder, result)
    config = {"model.layers": layers_of(architecture), "seed_everything": seed}
    return {"folder": str(folder.relative_to(results)), "estimator": "lr", "config": config, "result": result}


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

    monkeypatch.setattr(figure1_measurement, "subprocess", SimpleNamespace(run=run))
    return checkpoints


def test_the_run_with_the_lowest_seed_is_measured_once(tmp_path: Path, measured: list[str]) -> None:
    first = run_of(tmp_path, 0)
    record(tmp_path, run_of(tmp_path, 1), first, run_of(tmp_path, 0, "200-200"))
    measure_variance(tmp_path, jobs=2)
    assert measured == ["runs/32-64-128-256/0/best.ckpt"]
    digest = trained(first["config"], first["result"])
    assert read_measured(measurement_file(tmp_path, "lr")) == {"commit": "beef", "run": digest}
    again = first | {"config": first["config"] | {"model.new_setting": "its default"}}
    record(tmp_path, run_of(tmp_path, 1, minutes=2), run_of(tmp_path, 2), again)  # other seeds were trained
    measure_variance(tmp_path, jobs=2)
    assert len(measured) == 1


def test_a_run_that_was_trained_again_is_measured_again(tmp_path: Path, measured: list[str]) -> None:
    for times in (1, 2):
        record(tmp_path, run_of(tmp_path, 0, minutes=times))
        measure_variance(tmp_path, jobs=2)
        assert len(measured) == times


def test_fewer_images_than_all_are_not_enough(tmp_path: Path, measured: list[str]) -> None:
    record(tmp_path, run_of(tmp_path, 0))
    measure_variance(tmp_path, jobs=2)
    output = measurement_file(tmp_path, "lr")
    output.write_text(output.read_text().replace(",50000,", ",100,"))
    measure_variance(tmp_path, jobs=2)
    assert len(measured) == 2


def test_nothing_is_measured_where_the_run_with_its_baselines_is_not(tmp_path: Path, measured: list[str]) -> None:
    record(tmp_path, run_of(tmp_path, 0, here=False), run_of(tmp_path, 1))
    measure_variance(tmp_path, jobs=2)
    record(tmp_path, run_of(tmp_path, 0, "200-200"))
    measure_variance(tmp_path, jobs=2)
    record(tmp_path, run_of(tmp_path, 0))
    (tmp_path / "runs" / "32-64-128-256" / "0" / "result.json").unlink()  # trained again, not finished yet
    measure_variance(tmp_path, jobs=2)
    assert not measured


def test_a_measurement_that_fails_ends_in_a_sentence(tmp_path: Path) -> None:
    record(tmp_path, run_of(tmp_path, 0))
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
