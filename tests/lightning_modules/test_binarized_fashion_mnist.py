from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from torchvision.datasets import FashionMNIST

from lightning_modules import cli
from lightning_modules.binarized_fashion_mnist import BinarizedFashionMNIST
from lightning_modules.binary_images import Counts
from lightning_modules.data_parts.bits import fixed_bits
from lightning_modules.run.load import load_run
from tests.lightning_modules.data_parts.small_archives import assert_one_sentence, write_archives


@pytest.fixture
def pixels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """Of a small data set that takes the place of Fashion-MNIST in `tmp_path`."""
    monkeypatch.setattr(BinarizedFashionMNIST, "counts", Counts(train=40, val=20, test=20))
    return write_archives(tmp_path, FashionMNIST, monkeypatch)


def test_images_are_drawn_from_the_archives_as_those_of_mnist_are(tmp_path: Path, pixels: np.ndarray) -> None:
    data = BinarizedFashionMNIST(tmp_path, batch_size=40, eval_batch_size=20)
    bits = fixed_bits(pixels)
    assert np.array_equal(data.images("val"), bits[40:60])
    assert np.array_equal(torch.cat(list(data.test_dataloader())), bits[60:])
    np.testing.assert_allclose(data.mean, pixels[:40].mean(0) / 255, rtol=1e-6)
    fixed = BinarizedFashionMNIST(tmp_path, binarization="fixed", batch_size=40, eval_batch_size=20)
    (x,) = fixed.train_dataloader()
    assert torch.equal(x.sum(0), torch.from_numpy(bits[:40].sum(0)).float())


def test_larochelle_is_mnist_only() -> None:
    with pytest.raises(ValueError, match="expected") as error:
        BinarizedFashionMNIST(binarization="larochelle")
    assert_one_sentence(error, "binarization is 'larochelle', expected one of fixed, dynamic")


def test_a_run_on_another_data_set_is_one_overlay_away(tmp_path: Path, pixels: np.ndarray) -> None:
    results = tmp_path / "results"
    arguments = [
        *("fit", "--config", "base.yaml", "--config", "architecture/sbn_200_200.yaml"),
        *("--config", "estimator/likelihood_ratio.yaml", "--config", "data/fashion_mnist.yaml"),
        *("--data.data_dir", str(tmp_path), "--data.batch_size", "10", "--data.eval_batch_size", "10"),
        *("--model.layers", "[3]"),
        *("--trainer.max_steps", "4", "--trainer.accelerator", "cpu", "--results_dir", str(results)),
    ]
    assert cli.main(arguments) == 0
    folder = results / "runs" / "binarized_fashion_mnist" / "3" / "likelihood_ratio" / "seed0"
    config: dict[str, Any] = yaml.safe_load((folder / "config.yaml").read_text())
    assert config["data"]["class_path"] == "lightning_modules.binarized_fashion_mnist.BinarizedFashionMNIST"
    assert config["data"]["init_args"]["batch_size"] == 10
    module, data, _ = load_run(folder / "last.ckpt", tmp_path)
    assert isinstance(data, BinarizedFashionMNIST)
    assert torch.equal(module.model.mean, data.mean)
