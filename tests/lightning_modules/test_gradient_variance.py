from __future__ import annotations

import copy
import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers.logger import DummyLogger

from lightning_modules import gradient_variance
from lightning_modules.binarized_mnist import BinarizedMNIST
from lightning_modules.gradient_variance import GradientVariance
from lightning_modules.run.callbacks import TrainingClock
from lightning_modules.run.csv_files import VARIANCE_COLUMNS, MetricsCSV, read_variances
from lightning_modules.sbn_module import SBNModule
from releg.baselines import InputDependent, RunningAverage
from releg.estimators.common_random_numbers import CommonRandomNumbers
from releg.estimators.likelihood_ratio import LikelihoodRatio
from releg.measure.moments import GradientVariances
from tests.lightning_modules.run_states import curve

LAYERS = [5, 3]


@pytest.fixture(scope="module")
def data() -> BinarizedMNIST:
    data = BinarizedMNIST(binarization="fixed")
    data.setup("fit")
    return data


def paper_lr() -> LikelihoodRatio:
    return LikelihoodRatio([InputDependent(), RunningAverage()])


def crn() -> CommonRandomNumbers:
    return CommonRandomNumbers("batched")


class Scalars(DummyLogger):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[int | None, dict[str, float]]] = []

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        self.rows.append((step, dict(metrics)))

    def variances(self) -> dict[int | None, dict[str, float]]:
        return {step: row for step, row in self.rows if any(name.startswith("variance/") for name in row)}


def train(
    folder: Path, data: BinarizedMNIST, *callbacks: pl.Callback, steps: int = 4, ckpt: Path | None = None, **more: Any
) -> tuple[pl.Trainer, SBNModule, Scalars]:
    scalars = Scalars()
    trainer = pl.Trainer(
        accelerator="cpu",
        max_steps=steps,
        default_root_dir=folder,
        callbacks=list(callbacks),
        logger=more.pop("logger", scalars),
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        limit_val_batches=0,
        **more,
    )
    module = SBNModule(LAYERS, paper_lr(), 784)
    # each trainer gets its own data module: it keeps a reference to the trainer
    trainer.fit(module, datamodule=copy.copy(data), ckpt_path=ckpt)
    return trainer, module, scalars


def small(**more: Any) -> GradientVariance:
    return GradientVariance(**{"num_images": 3, "samples_per_image": 4, "baseline_steps": 3, **more})


def test_training_is_bit_identical_with_and_without_the_callback(tmp_path: Path, data: BinarizedMNIST) -> None:
    endings = []
    for callbacks in ([], [small(estimators={"crn": crn(), "plain": LikelihoodRatio()}, steps=[0, 1, 2, 3])]):
        torch.manual_seed(5)
        np.random.seed(5)
        _, module, _ = train(tmp_path, data, *callbacks)
        optimizer = module.optimizers()
        assert isinstance(optimizer, torch.optim.Optimizer)
        states = [value for state in optimizer.state_dict()["state"].values() for value in state.values()]
        endings.append([*module.state_dict().values(), *states, torch.get_rng_state(), torch.rand(1)])
        assert module.training
    assert all(torch.equal(torch.as_tensor(a), torch.as_tensor(b)) for a, b in zip(*endings, strict=True))
    assert {row["step"] for row in read_variances(tmp_path / "grad_variance.csv")} == {"0", "1", "2", "3", "4"}


def test_numbers_are_logged_by_kind_and_layer_and_written_in_long_form(tmp_path: Path, data: BinarizedMNIST) -> None:
    _, _, scalars = train(tmp_path, data, small(estimators={"crn": crn()}, steps=[2]))
    kinds = ["within", "between", "total", "exact_within", "optimal_within"]
    own = {f"variance/{kind}/layer{layer}" for kind in kinds for layer in (1, 2)}
    other = {f"variance/crn/{kind}/layer{layer}" for kind in kinds[:3] for layer in (1, 2)}
    assert {step: set(row) for step, row in scalars.variances().items()} == {2: own | other, 4: own | other}
    with (tmp_path / "grad_variance.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == VARIANCE_COLUMNS
    assert len(rows) == 2 * len(own | other)
    assert {(row["num_images"], row["samples_per_image"]) for row in rows} == {("3", "4")}
    logged = scalars.variances()[2]["variance/within/layer1"]
    (row,) = (
        r
        for r in rows
        if (r["step"], r["estimator"], r["layer"], r["kind"]) == ("2", "likelihood_ratio", "1", "within")
    )
    assert float(row["value"]) == logged
    assert float(row["standard_error"]) > 0


def test_only_the_end_is_measured_by_default(tmp_path: Path, data: BinarizedMNIST) -> None:
    _, _, scalars = train(tmp_path, data, small())
    assert set(scalars.variances()) == {4}


def test_a_continued_run_neither_repeats_nor_doubles_nor_misses_a_measurement(
    tmp_path: Path, data: BinarizedMNIST
) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train(whole, data, small(steps=[2, 4]), steps=6)
    trainer, _, _ = train(parts, data, small(steps=[2, 4]), steps=4)
    checkpoint = parts / "last.ckpt"
    trainer.save_checkpoint(checkpoint)
    _, _, scalars = train(parts, data, small(steps=[2, 4]), steps=6, ckpt=checkpoint)
    assert set(scalars.variances()) == {6}  # step 4 was in the file
    files = [(folder / "grad_variance.csv").read_text() for folder in (whole, parts)]
    assert files[0] == files[1]
    (parts / "grad_variance.csv").unlink()
    _, _, scalars = train(parts, data, small(steps=[2, 4]), steps=4, ckpt=checkpoint)
    assert set(scalars.variances()) == {4}  # killed between the last step and its measurement


def test_a_run_killed_between_the_two_files_of_a_measurement_has_each_number_once(
    tmp_path: Path, data: BinarizedMNIST
) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for folder in (whole, parts):
        folder.mkdir()
        trainer, _, _ = train(folder, data, small(), steps=4, logger=MetricsCSV(folder))
        trainer.save_checkpoint(folder / "last.ckpt")
    (parts / "grad_variance.csv").unlink()  # metrics.csv has its numbers, grad_variance.csv has not
    logger = MetricsCSV(parts)
    logger.start_at(4)
    train(parts, data, small(), steps=4, ckpt=parts / "last.ckpt", logger=logger)
    assert (parts / "grad_variance.csv").read_text() == (whole / "grad_variance.csv").read_text()
    assert curve(parts) == curve(whole)
    assert len(set(curve(parts))) == len(curve(parts)) > 0


def test_measuring_does_not_count_as_training_time(
    tmp_path: Path, data: BinarizedMNIST, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]

    def slow(*args: Any) -> dict[str, GradientVariances]:
        now[0] += 100
        return {}

    monkeypatch.setattr(gradient_variance, "measure", slow)
    monkeypatch.setattr("lightning_modules.run.callbacks.time.perf_counter", lambda: now[0])
    clock = TrainingClock()
    train(tmp_path, data, small(steps=[1, 2, 3]), clock)  # the command line puts the clock behind all other callbacks
    assert now[0] == 400
    assert clock.seconds == 0


def test_a_fast_dev_run_measures_next_to_nothing_and_writes_no_file(tmp_path: Path, data: BinarizedMNIST) -> None:
    train(tmp_path, data, GradientVariance(estimators={"crn": crn()}), fast_dev_run=True)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_images": 1}, "num_images is 1, expected at least 2"),
        ({"samples_per_image": 1}, "samples_per_image is 1, expected at least 2"),
        ({"steps": [3, -1]}, "steps is -1, expected at least 0"),
        ({"baseline_steps": -1}, "baseline_steps is -1, expected at least 0"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GradientVariance(**settings)


def test_more_images_than_the_data_set_has_are_refused_before_training(tmp_path: Path, data: BinarizedMNIST) -> None:
    with pytest.raises(ValueError, match="num_images is 50,001, expected at most the 50,000 training images"):
        train(tmp_path, data, small(num_images=50_001))


def test_another_estimator_by_the_name_of_the_runs_own_is_refused(tmp_path: Path, data: BinarizedMNIST) -> None:
    train(tmp_path / "same", data, small(estimators={"likelihood_ratio": paper_lr()}))
    with pytest.raises(ValueError, match="a likelihood_ratio with other settings than the run's own; rename it"):
        train(tmp_path / "other", data, small(estimators={"likelihood_ratio": LikelihoodRatio()}))
