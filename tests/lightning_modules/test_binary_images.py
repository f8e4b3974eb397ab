from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback, ModelCheckpoint

from lightning_modules.binary_images import SPLITS, Images
from lightning_modules.sbn_module import SBNModule
from releg.estimators.common_random_numbers import CommonRandomNumbers
from tests.lightning_modules.data_parts.small_archives import assert_one_sentence
from tests.lightning_modules.small_data import BITS, GREY, small


def test_splits_follow_each_other_in_the_order_of_the_images() -> None:
    data = small()
    assert data.data_size == 12
    parts = [BITS[:200], BITS[200:220], BITS[220:]]
    for split, part in zip(SPLITS, parts, strict=True):
        assert np.array_equal(data.images(split), part)
        assert np.array_equal(torch.cat(list(data.eval_loader(split))), part)
    assert np.array_equal(torch.cat(list(data.val_dataloader())), parts[1])
    assert np.array_equal(torch.cat(list(data.test_dataloader())), parts[2])


def test_training_images_are_the_frozen_bits_for_every_seed_and_never_fewer_than_asked_for() -> None:
    for seed in (0, 3):
        assert np.array_equal(small(seed=seed).training_images(200), BITS[:200])
    with pytest.raises(ValueError, match="num_images is 201, expected at most the 200 training images of Small"):
        small().training_images(201)


@pytest.mark.parametrize("given", [Images(BITS), Images(BITS, GREY[:200])], ids=["frozen", "redrawn"])
def test_batches_are_contiguous_float32_zeros_and_ones(given: Images) -> None:
    data = small(given)
    for loader in (data.train_dataloader(), data.val_dataloader(), data.test_dataloader()):
        for x in loader:
            assert x.shape[1:] == (12,)
            assert x.dtype == torch.float32
            assert x.is_contiguous()
            assert set(x.unique().tolist()) == {0.0, 1.0}


def test_the_mean_is_that_of_what_training_sees() -> None:
    for given, seen in ((Images(BITS), BITS[:200]), (Images(BITS, GREY[:200]), GREY[:200] / 255)):
        mean = small(given).mean
        assert mean.dtype == torch.float32
        np.testing.assert_allclose(mean, seen.mean(0), rtol=1e-6)


def test_data_are_prepared_before_they_are_read_whoever_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    data = small()
    calls: list[str] = []

    def load() -> Images:
        calls.append("load")
        return data.given

    monkeypatch.setattr(data, "prepare_data", lambda: calls.append("prepare"))
    monkeypatch.setattr(data, "load", load)
    _ = data.mean, data.checksum
    assert calls == ["prepare", "load"]


def test_only_training_bits_are_redrawn() -> None:
    data = small()
    (first,), (second,) = ([torch.cat(list(loader)) for loader in [data.train_dataloader()]] for _ in range(2))
    assert torch.equal(first, second), "the same position serves the same bits"
    loader = data.train_dataloader()
    epochs = [torch.cat(list(loader)).sum(0) for _ in range(2)]
    assert not torch.equal(*epochs), "the bits of another epoch are others, in any order"
    assert torch.equal(*(torch.cat(list(data.val_dataloader())) for _ in range(2)))


def test_the_checksum_says_which_bits_are_frozen_and_what_the_others_are_drawn_from() -> None:
    packed = np.packbits(BITS).tobytes()
    assert small(Images(BITS)).checksum == hashlib.sha256(packed).hexdigest()
    first = small().checksum
    assert first == hashlib.sha256(GREY[:200].tobytes() + np.packbits(BITS[200:]).tobytes()).hexdigest()
    changed = BITS.copy()
    changed[:200] ^= 1
    assert small(Images(changed, GREY[:200])).checksum == first, "frozen training bits play no part"
    changed = BITS.copy()
    changed[-1, -1] ^= 1
    assert small(Images(changed, GREY[:200])).checksum != first


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (Images(GREY), "bits of shape (240, 12) and type uint8 with 255 the largest, expected (240, 12)"),
        (Images(BITS[:-1]), "bits of shape (239, 12)"),
        (Images(BITS.astype(np.float32)), "type float32"),
        (Images(BITS, GREY), "intensities of shape (240, 12)"),
    ],
)
def test_images_that_break_the_promise_are_refused_when_they_are_loaded(given: Images, said: str) -> None:
    with pytest.raises(ValueError, match="expected") as error:
        small(given).setup("fit")
    assert_one_sentence(error, "Small.load gave ", said)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"batch_size": 0}, "batch_size is 0, expected a whole number from 1 to 200"),
        ({"batch_size": 2.5}, "batch_size is 2.5, expected a whole number"),
        ({"batch_size": True}, "batch_size is True, expected a whole number"),
        ({"batch_size": 201}, "batch_size is 201, expected a whole number from 1 to 200"),
        ({"eval_batch_size": -5}, "eval_batch_size is -5, expected a whole number from 1 to 200"),
    ],
)
def test_an_impossible_argument_is_refused_at_once(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match="expected") as error:
        small(**options)
    assert_one_sentence(error, said)


class Plain(pl.LightningDataModule):
    def train_dataloader(self) -> Any:
        return small().train_dataloader()


class AnotherSize(Plain):
    mean = torch.zeros(11)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"datamodule": Plain()}, "the data (Plain) have no mean, expected the training mean of 12 pixels"),
        ({"datamodule": AnotherSize()}, "the data (AnotherSize) have a mean of shape (11,)"),
        ({"train_dataloaders": small().train_dataloader()}, "have no mean"),
    ],
)
def test_a_net_is_not_trained_uncentred(given: dict[str, Any], said: str) -> None:
    trainer = pl.Trainer(accelerator="cpu", max_steps=1, logger=False, enable_checkpointing=False)
    with pytest.raises(ValueError, match="expected") as error:
        trainer.fit(SBNModule([3], CommonRandomNumbers(), 12), **given)
    assert_one_sentence(error, said)


# --- in Lightning: an interrupted run sees what it would have seen


class Recorder(pl.LightningModule):
    """Writes down every batch it is given; its weights depend on all of them and their order."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(12))
        self.trained: list[str] = []

    def training_step(self, x: torch.Tensor, batch_idx: int) -> torch.Tensor:
        self.trained.append(hashlib.sha256(x.numpy().tobytes()).hexdigest())
        return ((self.weight - x.mean(0)) ** 2).sum()

    def validation_step(self, x: torch.Tensor, batch_idx: int) -> None:
        """Validations must not disturb the order."""

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01, momentum=0.9)


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """Train on small images; answers with the module and its trainer."""

    def fit(
        ckpt_path: Path | None = None, callbacks: list[Callback] | None = None, **options: Any
    ) -> tuple[Recorder, pl.Trainer]:
        trainer = pl.Trainer(
            accelerator="cpu",
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            enable_checkpointing=bool(callbacks),
            callbacks=callbacks,
            default_root_dir=tmp_path,
            num_sanity_val_steps=1,
            **options,
        )
        module = Recorder()
        trainer.fit(module, datamodule=small(), ckpt_path=ckpt_path, weights_only=True)
        return module, trainer

    return fit


@pytest.mark.filterwarnings("error:.*not resumable.*")
@pytest.mark.parametrize(
    "options",
    [
        {"max_steps": 24, "check_val_every_n_epoch": None, "val_check_interval": 4},
        {"max_epochs": 2, "val_check_interval": 5},
        {"max_steps": 18, "limit_train_batches": 7},
    ],
    ids=["steps", "epochs", "limited epochs"],
)
def test_a_run_resumed_from_any_step_sees_the_batches_of_an_uninterrupted_one(
    run: Any, tmp_path: Path, options: dict[str, Any]
) -> None:
    every_step = ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=1, save_top_k=-1)
    whole, trainer = run(callbacks=[every_step], **options)
    assert len(set(whole.trained)) == trainer.global_step
    for step in (3, 7, 8, 10, 13):
        resumed, _ = run(tmp_path / f"step={step}.ckpt", **options)
        assert resumed.trained == whole.trained[step:], f"from step {step}"
        assert torch.equal(resumed.weight, whole.weight)


@pytest.mark.parametrize(
    ("part", "all_of_it"), [({"max_steps": 13}, {"max_steps": 27}), ({"max_epochs": 2}, {"max_epochs": 3})]
)
def test_a_run_that_ended_within_or_with_an_epoch_goes_on_from_there(
    run: Any, tmp_path: Path, part: dict[str, int], all_of_it: dict[str, int]
) -> None:
    whole, _ = run(**all_of_it)
    first, trainer = run(**part)
    trainer.save_checkpoint(tmp_path / "end.ckpt")
    resumed, _ = run(tmp_path / "end.ckpt", **all_of_it)
    assert first.trained + resumed.trained == whole.trained
    assert torch.equal(resumed.weight, whole.weight)
