"""A run from its first step to its result, and what it can be asked afterwards."""

import json
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import releg as library
from lightning_modules import cli
from lightning_modules.run.checkpoints import load_run_checkpoint
from lightning_modules.sbn_module import SBNModule
from tests.lightning_modules.commands_helper import fit, folder_of, trained
from tests.lightning_modules.run_states import result

BOUNDS = {"train/elbo", "val/elbo", "test/elbo", "test/multi_sample_bound"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run."""
    return trained(tmp_path_factory.mktemp("run"))


def test_a_run_leaves_config_metrics_events_checkpoints_and_provenance_in_its_folder(run: Path) -> None:
    names = {path.name for path in run.iterdir()}
    assert {"config.yaml", "metrics.csv", "best.ckpt", "last.ckpt", "provenance.json", "result.json"} <= names
    assert sum(name.startswith("events.out.tfevents") for name in names) == 1
    assert yaml.safe_load((run / "config.yaml").read_text())["model"]["layers"] == [12, 6]
    (entry,) = json.loads((run / "provenance.json").read_text())
    assert {"commit", "packages", "processor", "data_sha256", "command"} <= set(entry)
    assert result(run)["steps"] == 60
    assert result(run)["test/elbo"] <= result(run)["test/multi_sample_bound"] + 1e-3


def test_the_best_model_can_be_evaluated_and_loaded_by_lightning_and_by_the_library(run: Path) -> None:
    best = run / "best.ckpt"
    saved = ["--config", str(run / "config.yaml"), "--ckpt_path", str(best)]
    assert cli.main(["test", *saved]) == 0
    assert cli.main(["validate", *saved]) == 0
    module = SBNModule.load_from_checkpoint(best, map_location="cpu", test_samples=7)
    state = load_run_checkpoint(best)["state_dict"]
    assert all(torch.equal(value, module.state_dict()[name]) for name, value in state.items())
    assert (type(module.estimator).__name__, module.test_samples) == ("LikelihoodRatio", 7)
    net = library.load(best)
    assert all(torch.equal(value, net.state_dict()[name]) for name, value in module.model.state_dict().items())


def test_tensorboard_has_curves_images_and_hyperparameters(run: Path) -> None:
    events = EventAccumulator(str(run)).Reload()
    assert set(events.Tags()["scalars"]) == BOUNDS | {"train/learning_rate"}
    assert {"val_images/data", "val_images/reconstruction", "val_images/sample"} <= set(events.Tags()["images"])
    assert any("_hparams_" in tag for tag in events.summary_metadata)


def test_with_keys_taken_out_of_its_config_a_run_is_finished_and_with_a_changed_value_it_is_another(
    run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="releg")
    shutil.copytree(run.parents[3], tmp_path, dirs_exist_ok=True)
    path = folder_of(tmp_path) / "config.yaml"
    config = yaml.safe_load(path.read_text())
    for part, key in (("trainer", "accumulate_grad_batches"), ("model", "loss"), ("data", "eval_batch_size")):
        del config[part][key]
    del config["trainer"]["barebones"], config["model"]["estimator"]["init_args"]["samples"]
    path.write_text(yaml.safe_dump(config))
    kept = {file: file.read_bytes() for file in path.parent.iterdir()}
    assert cli.main(fit(tmp_path)) == 0
    assert "is finished already" in caplog.text
    config["model"]["weight_decay"] = 0.002
    path.write_text(yaml.safe_dump(config))
    assert cli.main(fit(tmp_path)) == 0
    assert (folder_of(tmp_path, "seed0-2") / "result.json").is_file()
    assert {file: file.read_bytes() for file in path.parent.iterdir()} == kept | {path: path.read_bytes()}
