from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from torch import Tensor

from lightning_modules import cli
from lightning_modules.binarized_mnist import BinarizedMNIST
from lightning_modules.run.csv_files import read_metrics
from lightning_modules.sbn_module import SBNModule
from releg import bounds
from releg.baselines import InputDependent, RunningAverage
from releg.estimators.common_random_numbers import CommonRandomNumbers
from releg.estimators.likelihood_ratio import LikelihoodRatio
from tests.lightning_modules.commands_helper import TINY


@pytest.fixture(scope="module")
def data() -> BinarizedMNIST:
    return BinarizedMNIST()


def test_weight_decay_acts_on_these_parameters_and_no_others() -> None:
    module = SBNModule([3, 2], LikelihoodRatio([InputDependent(4), RunningAverage()]), 784)
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    decayed, free = module.build_optimizer().param_groups
    assert (decayed["weight_decay"], free["weight_decay"]) == (0.001, 0.0)
    assert {names[id(p)] for p in decayed["params"]} == {
        "model.inference.0.weight",
        "model.inference.1.weight",
        "model.generative.0.weight",
        "model.generative.1.weight",
        "estimator.baselines.0.nets.0.0.weight",
        "estimator.baselines.0.nets.0.2.weight",
        "estimator.baselines.0.nets.1.0.weight",
        "estimator.baselines.0.nets.1.2.weight",
    }
    assert {names[id(p)] for p in free["params"]} == {
        "model.prior_logits",
        "model.inference.0.bias",
        "model.inference.1.bias",
        "model.generative.0.bias",
        "model.generative.1.bias",
        "estimator.baselines.0.nets.0.0.bias",
        "estimator.baselines.0.nets.0.2.bias",
        "estimator.baselines.0.nets.1.0.bias",
        "estimator.baselines.0.nets.1.2.bias",
    }


def test_one_step_is_rmsprop_on_the_sum_over_the_batch(data: BinarizedMNIST) -> None:
    module = SBNModule([3, 2], CommonRandomNumbers(), 784, seed=5)
    before = {name: value.detach().clone() for name, value in module.named_parameters()}
    trainer = quiet_trainer(max_steps=1)
    trainer.fit(module, datamodule=data)
    x = next(iter(BinarizedMNIST().train_dataloader()))
    reference = SBNModule([3, 2], CommonRandomNumbers(), 784, seed=5)
    reference.model.mean.copy_(data.mean)
    noise = reference.estimator.draw_noise(reference.model, x, reference.generator("noise", 0))
    reference.estimator(reference.model, x, noise).surrogate.sum().backward()
    for name, parameter in reference.named_parameters():
        assert parameter.grad is not None
        gradient = parameter.grad + (0.001 * parameter if name.endswith("weight") else 0)
        step = 0.001 * gradient / ((0.01 * gradient**2).sqrt() + 1e-8)
        after = dict(module.named_parameters())[name]
        torch.testing.assert_close(after, before[name] - step, rtol=1e-4, atol=1e-6)


def quiet_trainer(**settings: object) -> pl.Trainer:
    return pl.Trainer(
        accelerator="cpu", devices=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, limit_val_batches=0, **settings,  # type: ignore[arg-type]
    )  # fmt: skip


def test_the_mean_of_the_training_images_is_subtracted(data: BinarizedMNIST) -> None:
    module = SBNModule([3], CommonRandomNumbers(), 784)
    quiet_trainer(max_steps=1).fit(module, datamodule=data)
    assert torch.equal(module.model.mean, data.mean)


def test_test_reports_the_mean_bound_of_all_images(data: BinarizedMNIST) -> None:
    module = SBNModule([4, 2], CommonRandomNumbers(), 784, test_samples=3)
    (metrics,) = quiet_trainer(limit_test_batches=3).test(module, datamodule=data, verbose=False)
    expected, single = [], []
    for index, x in zip(range(3), data.test_dataloader(), strict=False):
        weights = bounds.log_weights(module.model, x, 3, module.generator("test", index))
        single.append(weights.mean(1))
        expected.append(bounds.log_mean_weight(weights))
    assert metrics["test/elbo"] == pytest.approx(torch.cat(single).mean().item(), rel=1e-5)
    assert metrics["test/multi_sample_bound"] == pytest.approx(torch.cat(expected).mean().item(), rel=1e-5)


class Explodes(CommonRandomNumbers):
    """An estimator whose answer stops being finite at the 31st step."""

    calls = 0

    def draw_noise(self, *args: object, **kwargs: object) -> list[Tensor]:
        Explodes.calls += 1
        return super().draw_noise(*args, **kwargs)  # type: ignore[arg-type]

    def estimate(self, model: object, *args: object) -> object:  # type: ignore[override]
        if Explodes.calls == 31:
            with torch.no_grad():
                model.generative[0].weight[0, 0] = float("nan")  # type: ignore[attr-defined]
        return super().estimate(model, *args)  # type: ignore[arg-type]


def test_a_loss_that_is_not_finite_stops_with_a_sentence_and_the_last_good_checkpoint_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from lightning_modules.run.checkpoints import load_run_checkpoint

    estimator = f"{Explodes.__module__}.Explodes"
    assert cli.main(["fit", *TINY, "--model.estimator", estimator, "--results_dir", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "generative.0.weight" in error
    assert "last good checkpoint" in error
    (last,) = tmp_path.rglob("last.ckpt")
    state = load_run_checkpoint(last)
    assert state["global_step"] == 20
    assert all(bool(torch.isfinite(value).all()) for value in state["state_dict"].values())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"optimizer": lambda p: torch.optim.SGD(p, lr=0.0)}, "lr of SGD is 0.0, expected a positive number"),
        ({"optimizer": lambda p: torch.optim.Adam(p, betas=(2, 0))}, "Invalid beta parameter .* expected settings"),
        (
            {"optimizer": lambda p: torch.optim.Adam(p, weight_decay=0.1)},
            "weight_decay of Adam is 0.1, .* set model",
        ),
        ({"optimizer": torch.optim.Rprop}, "Rprop has no weight_decay option, got weight_decay 0.001"),
        ({"lr_scheduler": torch.optim.lr_scheduler.ReduceLROnPlateau}, "lr_scheduler is a ReduceLROnPlateau, expected"),
        ({"weight_decay": -1.0}, "weight_decay is -1.0, expected at least 0"),
        ({"val_samples": 0}, "val_samples is 0, expected at least 1"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SBNModule([3], CommonRandomNumbers(), 784, **settings)


def test_common_random_numbers_learn_faster_than_the_likelihood_ratio(tmp_path: Path) -> None:
    elbos = {}
    for estimator in ("likelihood_ratio", "common_random_numbers"):
        configs = ["base.yaml", "architecture/sbn_200_200.yaml", f"estimator/{estimator}.yaml"]
        arguments = [word for config in configs for word in ("--config", config)]
        short = ["--trainer.max_steps", "200", "--trainer.val_check_interval", "200"]
        small = ["--trainer.limit_val_batches", "4", "--trainer.limit_test_batches", "1"]
        assert cli.main(["fit", *arguments, *short, *small, "--results_dir", str(tmp_path)]) == 0
        (metrics,) = (tmp_path / "runs" / "200-200" / estimator).rglob("metrics.csv")
        elbos[estimator] = [float(row["value"]) for row in read_metrics(metrics) if row["metric"] == "val/elbo"][-1]
    # 2,000 images, a standard deviation of about 25 nats between them: a standard error of 0.6 nats for each mean
    assert elbos["common_random_numbers"] > elbos["likelihood_ratio"] + 5, elbos
