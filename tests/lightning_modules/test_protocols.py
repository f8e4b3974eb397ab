"""The protocols of later papers: what their overlays set, and the two settings of the model that they need."""

from pathlib import Path

import pytest
import torch

from lightning_modules.binarized_mnist import BinarizedMNIST
from lightning_modules.run.settings import build
from lightning_modules.sbn_module import DARKEST, SBNModule
from releg.estimators.common_random_numbers import CommonRandomNumbers
from tests.lightning_modules.commands_helper import settings
from tests.lightning_modules.test_sbn_module import quiet_trainer


def overlays(protocol: str) -> list[str]:
    layers = ["base.yaml", "architecture/sbn_200.yaml", "estimator/leave_one_out.yaml", f"protocol/{protocol}"]
    return [word for name in layers for word in ("--config", name)]


@pytest.mark.parametrize(
    ("protocol", "batch_size", "rate", "learned_prior"),
    [("disarm.yaml", 50, 1e-4, True), ("rodeo.yaml", 100, 1e-3, False)],
)
def test_a_run_by_a_protocol_is_built_as_its_paper_says(
    protocol: str, batch_size: int, rate: float, learned_prior: bool
) -> None:
    config = settings(*overlays(protocol)).config
    module, data = build(config)
    assert config["trainer"]["max_steps"] == 1_000_000
    assert data.batch_size == batch_size
    assert module.model.prior_logits.requires_grad == learned_prior
    optimizer = module.optimizer(module.parameters())
    assert isinstance(optimizer, torch.optim.Adam)
    assert optimizer.param_groups[0]["lr"] == rate


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
