"""The published models on other draws of the test bits."""

import json
from pathlib import Path

import pytest
import torch

from lightning_modules.binarized_mnist import BinarizedMNIST
from lightning_modules.data_parts.archives import read_pixels
from lightning_modules.data_parts.bits import redraw
from lightning_modules.grid.weights import NEEDED
from lightning_modules.studies import redrawn_test_bits
from releg.sbn import SigmoidBeliefNet
from releg.seeds import seed_for
from releg.weights import save_model


def test_every_model_is_evaluated_on_bits_that_differ_from_ours_and_from_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redrawn_test_bits, "DRAWS", 3)
    data = BinarizedMNIST()
    model = SigmoidBeliefNet(data.data_size, [2], data.mean)
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)
    rates = data.mean.clamp(0.001, 0.999)
    model.generative[0].bias.data[:] = torch.logit(rates)
    path = tmp_path / "weights" / "2" / "crn.safetensors"
    path.parent.mkdir(parents=True)
    says = dict.fromkeys(NEEDED, "0") | {"estimator": "crn", "test/elbo": "-200.0"}
    save_model(path, model, {name: says[name] for name in says if name != "architecture"})
    assert redrawn_test_bits.main(["--results", str(tmp_path)]) == 0
    (cell,) = json.loads((tmp_path / "test_bits.json").read_text())["cells"]
    assert (cell["architecture"], cell["estimator"], cell["frozen"]) == ("2", "crn", 200.0)
    pixels = read_pixels(data.dataset, data.data_dir)[-10_000:]
    draws = [redraw(pixels, seed_for(0, "test bits", number)) for number in range(3)]
    x = torch.stack([torch.from_numpy(bits).float() for bits in (*draws, data.images("test"))])
    *others, frozen = -(x @ rates.log() + (1 - x) @ (1 - rates).log()).mean(1)  # exact: z says nothing about x
    assert cell["bounds"] == pytest.approx([bound.item() for bound in others], abs=1e-3)
    assert len({round(bound.item(), 2) for bound in (*others, frozen)}) == 4
