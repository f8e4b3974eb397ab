"""runs.json, written and read."""

import json
from pathlib import Path
from typing import Any

import pytest

from releg.records.file_names import RESULT
from releg.records.names import PAPER_DATA
from releg.records.runs import Entry, read_missing, read_runs, write_runs
from tests.releg.report.synthetic import entry, write_results


def read_one(folder: Path, **config: Any) -> Entry:
    (run,) = read_runs(write_results(folder, [entry("200-100", "crn", 3, 100.0, 500, **config)]))
    return run


def test_an_entry_survives_its_file(tmp_path: Path) -> None:
    run = read_one(tmp_path)
    write_runs(tmp_path, [run], {"SBN(9) lr seed 0": "the disk is full"})
    assert read_runs(tmp_path) == [run]
    assert read_missing(tmp_path) == {"SBN(9) lr seed 0": "the disk is full"}


def test_an_entry_knows_its_settings(tmp_path: Path) -> None:
    run = read_one(tmp_path)
    assert (run.cell, run.seed, run.steps) == (("200-100", "crn"), 3, 500)
    assert (run.data, run.recipe) == (PAPER_DATA, "RMSprop 0.001, constant")
    schedule = {"class_path": "lightning_modules.schedules.CosineDecay", "init_args.warmup_steps": 2000}
    config: dict[str, Any] = {f"model.lr_scheduler.{name}": value for name, value in schedule.items()}
    config |= {"model.optimizer.class_path": "torch.optim.Adam", "model.optimizer.init_args.lr": 0.01}
    config["data.class_path"] = "lightning_modules.binarized_fashion_mnist.BinarizedFashionMNIST"
    run = read_one(tmp_path, **config)
    assert (run.net, run.recipe) == ("200-100, FashionMNIST", "Adam 0.01, cosine, warm-up 2,000")


def test_a_run_is_here_if_its_folder_has_its_result_and_not_that_of_another_run(tmp_path: Path) -> None:
    run = read_one(tmp_path)
    assert not run.is_here
    run.folder.mkdir(parents=True)
    for result, is_here in ((run.result, True), (run.result | {"test/elbo": -1.0}, False), ({}, False), ([], False)):
        (run.folder / RESULT).write_text(json.dumps(result))
        assert run.is_here == is_here


def test_a_changed_number_is_noticed(tmp_path: Path) -> None:
    write_runs(tmp_path, [read_one(tmp_path)], {})
    path = tmp_path / "runs.json"
    path.write_text(path.read_text().replace("-100.0", "-90.0"))
    with pytest.raises(ValueError, match="does not fit its digest"):
        read_runs(tmp_path)


def test_a_run_that_was_trained_again_is_another_one(tmp_path: Path) -> None:
    first = read_one(tmp_path)
    assert read_one(tmp_path, **{"model.new_setting": 1}).trained == first.trained
    again = entry("200-100", "crn", 3, 100.0, 500)
    again["result"]["training_seconds"] += 1
    (second,) = read_runs(write_results(tmp_path, [again]))
    assert second.trained != first.trained


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'{"runs": [{}]}', b'{"runs": [{"config": 3}]}'])
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "runs.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"runs.json cannot be read \(.*\), expected"):
        read_runs(tmp_path)


def test_a_run_without_provenance_can_be_read(tmp_path: Path) -> None:
    (run,) = read_runs(write_results(tmp_path, [entry("200-100", "lr", 0, 100.0) | {"provenance": []}]))
    assert run.provenance == []
