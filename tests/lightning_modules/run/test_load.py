"""Trained weights from their files."""

import shutil
from pathlib import Path

import pytest
import torch

from lightning_modules.run.checkpoints import load_run_checkpoint
from lightning_modules.run.load import load_run, load_trained
from releg.sbn import SigmoidBeliefNet
from releg.weights import save_model
from tests.lightning_modules.commands_helper import SHORT, trained


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("run"), *SHORT)


def test_module_data_and_step_are_those_of_the_checkpoint(run: Path) -> None:
    module, data, step = load_run(run / "last.ckpt")
    state = load_run_checkpoint(run / "last.ckpt")
    assert step == 4
    assert not module.training
    assert all(torch.equal(value, state["state_dict"][name]) for name, value in module.state_dict().items())
    assert data.checksum == state["identity"]["data"]
    assert torch.equal(module.model.mean, data.mean)


def test_published_weights_need_nothing_beside_them(tmp_path: Path) -> None:
    model = SigmoidBeliefNet(784, [4, 3])
    save_model(tmp_path / "lr.safetensors", model, {"estimator": "lr", "best_step": "7"})
    trained = load_trained(tmp_path / "lr.safetensors")
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in trained.model.state_dict().items())
    assert (trained.estimator, trained.step, trained.trained_with) == (None, 7, "LR")
    assert trained.data.images("train").shape == (50_000, 784)


def test_without_its_config_or_with_another_runs_a_checkpoint_is_refused(run: Path, tmp_path: Path) -> None:
    shutil.copy(run / "last.ckpt", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"no config\.yaml beside .*last\.ckpt, expected the run's own"):
        load_run(tmp_path / "last.ckpt")
    config = (run / "config.yaml").read_text()
    (tmp_path / "config.yaml").write_text(config.replace("weight_decay: 0.001", "weight_decay: 0.002"))
    with pytest.raises(ValueError, match=r"model\.weight_decay is 0\.001, expected 0\.002; .* are of different runs"):
        load_run(tmp_path / "last.ckpt")
