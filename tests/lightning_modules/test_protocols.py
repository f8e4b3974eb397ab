"""The protocols of later papers: what their overlays set, and the two settings of the model that they need."""

from pathlib import Path

import pytest
import torch
import yaml

from lightning_modules import cli
from lightning_modules.binarized_mnist import BinarizedMNIST
from lightning_modules.sbn_module import DARKEST, SBNModule
from releg.estimators.common_random_numbers import CommonRandomNumbers
from tests.lightning_modules.test_sbn_module import quiet_trainer

CONFIGS = Path(cli.__file__).parent / "configs"
PROTOCOLS = sorted(path.name for path in (CONFIGS / "protocol").glob("*.yaml"))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_protocol_is_a_valid_overlay(protocol: str, tmp_path: Path) -> None:
    layers = ["base.yaml", "architecture/sbn_200.yaml", "estimator/leave_one_out.yaml", f"protocol/{protocol}"]
    overlays = [word for name in layers for word in ("--config", name)]
    fast = ["--model.layers", "[3]", "--trainer.fast_dev_run", "1", "--results_dir", str(tmp_path)]
    assert cli.main(["fit", *overlays, *fast]) == 0


def test_the_protocols_differ_where_their_papers_do() -> None:
    disarm, rodeo = (
        yaml.safe_load((CONFIGS / "protocol" / f"{name}.yaml").read_text()) for name in ("disarm", "rodeo")
    )
    assert (disarm["data"]["batch_size"], rodeo["data"]["batch_size"]) == (50, 100)
    rates = [each["model"]["optimizer"]["init_args"]["lr"] for each in (disarm, rodeo)]
    assert rates == [0.0001, 0.001]
    assert disarm["model"].get("learned_prior", True)
    assert not rodeo["model"]["learned_prior"]


def test_a_fixed_prior_stays_uniform_and_a_learned_one_moves() -> None:
    for learned in (True, False):
        module = SBNModule([3, 2], CommonRandomNumbers(), 784, learned_prior=learned)
        weights = module.model.generative[1].weight.detach().clone()
        quiet_trainer(max_steps=1).fit(module, datamodule=BinarizedMNIST())
        assert bool((module.model.prior_logits != 0).any()) == learned
        assert not torch.equal(module.model.generative[1].weight, weights)


def test_pixel_biases_start_at_the_logits_of_the_mean() -> None:
    data = BinarizedMNIST()
    module = SBNModule([3], CommonRandomNumbers(), 784, pixel_bias=True)
    module.optimizer = lambda groups: torch.optim.SGD(groups, lr=0.0)
    quiet_trainer(max_steps=1).fit(module, datamodule=data)
    bias = module.model.generative[0].bias.detach()
    torch.testing.assert_close(torch.sigmoid(bias), data.mean.clamp(DARKEST, 1 - DARKEST))
    assert bool(bias.isfinite().all())


def test_a_checkpoint_brings_its_own_pixel_biases(tmp_path: Path) -> None:
    data = BinarizedMNIST()
    trained = SBNModule([3], CommonRandomNumbers(), 784, pixel_bias=True)
    trainer = quiet_trainer(max_steps=3)
    trainer.fit(trained, datamodule=data)
    trainer.save_checkpoint(tmp_path / "three.ckpt")
    again = SBNModule([3], CommonRandomNumbers(), 784, pixel_bias=True)
    quiet_trainer(max_steps=3).fit(again, datamodule=data, ckpt_path=tmp_path / "three.ckpt", weights_only=False)
    assert torch.equal(again.model.generative[0].bias, trained.model.generative[0].bias)
