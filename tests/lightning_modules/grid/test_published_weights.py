"""The best model of each cell of Table 1, in a file that says where it comes from."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_modules.grid import published_weights
from lightning_modules.grid.published_weights import (
    measure_variance,
    publish,
    published,
    read_description,
)
from releg.naming.csv_formats import VARIANCE_COLUMNS, csv_text
from releg.report.figure1_data import variance_file
from releg.weights import load
from tests.lightning_modules.run_states import RESULT, save_best
from tests.releg.helpers import random_model

CONFIG = {"model.layers": [4, 3], "model.test_samples": 20, "seed_everything": 7}


def finished(folder: Path, bias: float, validation_bound: float) -> dict[str, Any]:
    """An entry of runs.json, and the checkpoint of a model whose first bias tells it from others."""
    folder.mkdir()
    model = random_model(5, [4, 3])
    model.generative[0].bias.data[0] = bias
    save_best(folder, model)
    return {
        "folder": folder.name,
        "estimator": "crn",
        "config": CONFIG,
        "result": RESULT | {"val/elbo": validation_bound},
        "provenance": [
            {"commit": "old", "data_sha256": "12"},
            {"commit": "new", "uncommitted_changes": True, "data_sha256": "34"},
        ],
    }


def test_the_best_run_of_a_cell_by_its_validation_bound_is_published(tmp_path: Path) -> None:
    runs = [finished(tmp_path / str(seed), seed, bound) for seed, bound in enumerate((-3.0, -1.0, -2.0))]
    (cell,) = publish(tmp_path, runs)
    assert list(published(tmp_path)) == [cell]
    assert cell.path == tmp_path / "weights" / "3-4" / "crn.safetensors"
    assert load(cell.path).generative[0].bias[0] == 1.0


def test_the_models_of_longer_budgets_stand_beside_those_of_the_published_table(tmp_path: Path) -> None:
    cells = []
    for number, folder in enumerate((tmp_path, tmp_path / "converged", tmp_path / "paper")):
        folder.mkdir(exist_ok=True)
        cells += publish(folder, [finished(folder / "run", number, -number)])
    assert list(published(tmp_path)) == cells
    assert [load(cell.path).generative[0].bias[0] for cell in cells] == [0.0, 1.0, 2.0]
    assert [str(cell) for cell in cells] == [
        "SBN(3-4) crn",
        "SBN(3-4) crn, budget converged",
        "SBN(3-4) crn, budget paper",
    ]


def test_the_file_of_a_run_that_was_trained_elsewhere_stays(tmp_path: Path) -> None:
    run = finished(tmp_path / "run", 0.0, -1.0)
    (cell,) = publish(tmp_path, [run])
    before = cell.path.read_bytes()
    assert publish(tmp_path, [run | {"folder": "runs/elsewhere"}]) == []
    assert cell.path.read_bytes() == before


def test_a_checkpoint_that_does_not_fit_its_digest_is_not_published(tmp_path: Path) -> None:
    run = finished(tmp_path / "run", 0.0, -1.0)
    checkpoint = torch.load(tmp_path / "run" / "best.ckpt", weights_only=True)
    checkpoint["state_dict"]["model.generative.0.bias"][0] = 1.0
    torch.save(checkpoint, tmp_path / "run" / "best.ckpt")
    with pytest.raises(ValueError, match=r"best\.ckpt is damaged \(its content does not fit its digest\)"):
        publish(tmp_path, [run])
    assert list(published(tmp_path)) == []


def test_the_file_says_what_its_number_depends_on(tmp_path: Path) -> None:
    (cell,) = publish(tmp_path, [finished(tmp_path / "run", 0.0, -1.0)])
    says = read_description(cell)
    assert (says["estimator"], says["architecture"], says["seed"]) == ("crn", "3-4", "7")
    assert (float(says["test/elbo"]), says["test_samples"], says["steps"]) == (RESULT["test/elbo"], "20", "5")
    assert (says["commit"], says["data_sha256"]) == ("old; new with uncommitted changes", "34")
    assert json.loads(says["settings"]) == CONFIG


@pytest.mark.parametrize(("images", "again"), [(None, True), (100, True), (50_000, False)])
def test_variances_are_measured_unless_all_training_images_were(
    images: int | None, again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[list[str]] = []

    def run(words: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        called.append(words)
        return subprocess.CompletedProcess(words, 0)

    monkeypatch.setattr(published_weights.subprocess, "run", run)
    monkeypatch.setattr(published_weights, "FIGURE1_ARCHITECTURE", "3-4")
    monkeypatch.setattr("releg.report.figure1_data.FIGURE1_ARCHITECTURE", "3-4")
    worse, best = (
        finished(tmp_path / name, 0.0, bound) | {"estimator": "lr"} for name, bound in [("worse", -2.0), ("best", -1.0)]
    )
    measure_variance(tmp_path, [worse, best], jobs=2)
    assert not called, "there are no weights yet"
    publish(tmp_path, [worse, best])
    measure_variance(tmp_path, [worse, best | {"folder": "elsewhere"}], jobs=2)
    assert not called, "the run, with its baselines, is not here"
    output = variance_file(tmp_path, "lr")
    if images:
        output.write_text(
            csv_text(VARIANCE_COLUMNS, [(200_000, "likelihood_ratio", 1, "total", 2.0, 0.1, images, 1000)])
        )
    measure_variance(tmp_path, [worse, best], jobs=2)
    assert [words[words.index("--ckpt") + 1] for words in called] == [str(tmp_path / "best" / "best.ckpt")] * again


def test_a_measurement_that_fails_ends_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published_weights, "FIGURE1_ARCHITECTURE", "3-4")
    entry = finished(tmp_path / "run", 0.0, -1.0) | {"estimator": "lr"}
    publish(tmp_path, [entry])
    with pytest.raises(ValueError, match=r"was not measured \(exit code 2\); the same command continues it"):
        measure_variance(tmp_path, [entry], jobs=1)  # there is no config beside the checkpoint
