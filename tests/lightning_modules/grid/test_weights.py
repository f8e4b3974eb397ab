"""The best model of each cell of Table 1, in a file that says where it comes from."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_modules.grid.weights import publish, published, read_description
from lightning_modules.run.result import write_result
from releg.records.runs import Entry
from releg.weights import load
from tests.lightning_modules.run_states import RESULT, save_best
from tests.releg.helpers import random_model

CONFIG = {"model.layers": [4, 3], "model.test_samples": 20, "seed_everything": 7}
PROVENANCE: list[dict[str, Any]] = [
    {"commit": "old", "data_sha256": "12"},
    {"commit": "new", "uncommitted_changes": True, "data_sha256": "34"},
]


def finished(folder: Path, bias: float, validation_bound: float) -> Entry:
    """An entry of runs.json, and the checkpoint of a model whose first bias tells it from others."""
    folder.mkdir(parents=True)
    model = random_model(5, [4, 3])
    model.generative[0].bias.data[0] = bias
    save_best(folder, model)
    result = RESULT | {"val/elbo": validation_bound}
    write_result(folder, result)
    return Entry(folder, CONFIG, result, PROVENANCE, "crn")


def elsewhere(entry: Entry) -> Entry:
    """The same run without its folder."""
    return replace(entry, folder=entry.folder / "elsewhere")


def first_bias(path: Path) -> float:
    return load(path).generative[0].bias[0].item()


def test_the_best_run_of_a_cell_by_its_validation_bound_is_published(tmp_path: Path) -> None:
    runs = [finished(tmp_path / str(seed), seed, bound) for seed, bound in enumerate((-3.0, -1.0, -2.0))]
    (cell,) = publish(tmp_path, runs)
    assert list(published(tmp_path)) == [cell]
    assert cell.path == tmp_path / "weights" / "3-4" / "crn.safetensors"
    assert first_bias(cell.path) == 1.0


def test_the_models_of_longer_budgets_stand_beside_those_of_the_published_table(tmp_path: Path) -> None:
    cells = []
    for number, folder in enumerate((tmp_path, tmp_path / "converged", tmp_path / "paper")):
        cells += publish(folder, [finished(folder / "run", number, -number)])
    assert list(published(tmp_path)) == cells
    assert [first_bias(cell.path) for cell in cells] == [0.0, 1.0, 2.0]
    assert [str(cell) for cell in cells] == [f"SBN(3-4) crn{s}" for s in ("", ", budget converged", ", budget paper")]


def test_the_file_of_a_run_that_was_trained_elsewhere_stays_and_a_damaged_one_is_replaced_if_its_run_is_here(
    tmp_path: Path,
) -> None:
    run = finished(tmp_path / "run", 0.0, -1.0)
    (cell,) = publish(tmp_path, [run])
    whole = cell.path.read_bytes()
    for content in (whole, whole[:-1]):
        cell.path.write_bytes(content)
        assert publish(tmp_path, [elsewhere(run)]) == []
        assert cell.path.read_bytes() == content
    assert publish(tmp_path, [run]) == [cell]
    assert cell.path.read_bytes() == whole


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
    (cell,) = publish(tmp_path, [replace(finished(tmp_path / "lost", 0.0, 0.0), provenance=[])])
    assert {read_description(cell)[name] for name in ("commit", "data_sha256")} == {"unknown"}


def test_a_better_run_counts_if_it_is_here_or_was_published_before(tmp_path: Path) -> None:
    worse, better = (finished(tmp_path / name, bias, bound) for name, bias, bound in [("0", 0, -2.0), ("1", 1, -1.0)])
    (cell,) = publish(tmp_path, [worse, elsewhere(better)])
    assert first_bias(cell.path) == 0.0
    publish(tmp_path, [worse, better])
    assert publish(tmp_path, [worse, elsewhere(better)]) == []
    assert first_bias(cell.path) == 1.0


def test_a_run_that_trains_in_the_folder_of_a_recorded_one_is_not_published_under_its_numbers(tmp_path: Path) -> None:
    recorded = finished(tmp_path / "0", 0.0, -1.0)
    (tmp_path / "0" / "result.json").unlink()  # trained again: its checkpoint is there already
    assert publish(tmp_path, [recorded]) == []
    write_result(tmp_path / "0", RESULT | {"val/elbo": -0.5})
    assert publish(tmp_path, [recorded]) == []
