from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from lightning_modules import cli
from lightning_modules.binarized_mnist import BinarizedMNIST
from lightning_modules.run.identity import settings_of
from lightning_modules.run.settings import build, find_config
from tests.lightning_modules.commands_helper import settings
from tests.pages import blocks, section

LAYERED = [
    *("--config", "base.yaml", "--config", "architecture/sbn_200_200.yaml"),
    *("--config", "estimator/common_random_numbers.yaml"),
]
FLAT = {"data_dir": None, "binarization": "fixed", "batch_size": 50, "eval_batch_size": 500, "seed": 0}


@pytest.mark.parametrize(
    "data",
    [
        FLAT,
        {"class_path": "lightning_modules.binarized_mnist.BinarizedMNIST", "init_args": FLAT},
        {"class_path": "BinarizedMNIST", "init_args": FLAT},
    ],
    ids=["flat", "class path", "class name"],
)
def test_settings_of_mnist_are_saved_flat_however_they_are_given(data: dict[str, Any], tmp_path: Path) -> None:
    by_options = settings(*LAYERED, "--data.binarization", "fixed", "--data.batch_size", "50").config
    assert by_options["data"] == FLAT
    (tmp_path / "data.yaml").write_text(yaml.safe_dump({"data": data}))
    by_file = settings(*LAYERED, "--config", str(tmp_path / "data.yaml")).config
    assert by_file["data"] == FLAT
    assert settings_of(by_file) == settings_of(by_options)


def test_a_config_that_is_not_there_is_answered_with_the_shipped_ones() -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no config none\.yaml, expected a file or one of arch"):
        find_config("none.yaml")


def test_a_saved_config_builds_the_data_and_a_model_of_their_size() -> None:
    config = settings(*LAYERED, "--model.layers", "[3]").config
    assert "data_size" not in config["model"], "configs saved before there was a choice have none"
    module, data = build(config)
    assert isinstance(data, BinarizedMNIST)
    assert module.model.mean.shape == (data.data_size,) == (784,)


def test_the_data_set_that_the_page_shows_can_be_trained_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (shown,) = blocks(section("data", "A data set of your own"), "python")
    (tmp_path / "my_module.py").write_text(shown)
    monkeypatch.syspath_prepend(tmp_path)
    options = ["--data", "my_module.Stripes", "--model.layers", "[3]", "--trainer.max_steps", "2"]
    assert cli.main(["fit", *LAYERED, *options, "--trainer.accelerator", "cpu", "--results_dir", str(tmp_path)]) == 0
    assert (tmp_path / "runs" / "stripes" / "3" / "common_random_numbers" / "seed0" / "result.json").is_file()


@pytest.mark.parametrize("data", [[], ["--config", "data/fashion_mnist.yaml"]])
def test_building_what_a_config_describes_leaves_it_as_it_was(data: list[str], tmp_path: Path) -> None:
    config = settings(*LAYERED, *data).config
    before = copy.deepcopy(config)
    build(config, tmp_path)
    assert config == before
