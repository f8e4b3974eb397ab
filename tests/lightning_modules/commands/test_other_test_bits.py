"""The published models on other draws of the test bits."""

import json
from pathlib import Path

import torch

from lightning_modules.binarized_mnist import BinarizedMNIST
from lightning_modules.commands import other_test_bits
from lightning_modules.grid.published_weights import NEEDED
from releg.sbn import SigmoidBeliefNet
from releg.weights import save_model


def test_every_model_is_evaluated_on_bits_that_differ_from_ours_and_from_each_other(tmp_path: Path) -> None:
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
    assert other_test_bits.main(["--draws", "3", "--results", str(tmp_path)]) == 0
    (cell,) = json.loads((tmp_path / "test_bits.json").read_text())["cells"]
    assert (cell["architecture"], cell["estimator"], cell["frozen"]) == ("2", "crn", 200.0)
    frozen = torch.from_numpy(data.images("test")).float()

    def bound(x: torch.Tensor) -> float:
        """Of the biases alone, which is exact: the latent units say nothing about x."""
        return -(x @ rates.log() + (1 - x) @ (1 - rates).log()).mean().item()

    assert len({round(each, 4) for each in (*cell["bounds"], bound(frozen))}) == 4
    assert all(abs(each - bound(frozen)) < 1 for each in cell["bounds"])
    other_test_bits.main(["--draws", "3", "--results", str(tmp_path)])
    assert json.loads((tmp_path / "test_bits.json").read_text())["cells"] == [cell]
