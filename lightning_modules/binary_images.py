"""What a data set has to provide: binary images in three splits, their training mean, a checksum and batches."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities.rank_zero import rank_zero_only
from torch import Tensor

from lightning_modules.data_parts.bits import Array, sha256_of_bits
from lightning_modules.data_parts.loaders import EvalLoader, TrainLoader

Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = ("train", "val", "test")  # in the order of the images


class Counts(NamedTuple):
    """Number of images in each split."""

    train: int
    val: int
    test: int


class Images(NamedTuple):
    """All images of a data set: training, validation, test.

    Args:
        bits: (N, data_size) uint8, zeros and ones, which never change.
        intensities: None, or (N, data_size) uint8 from 0 to 255 of the training images. Training bits are then drawn
            again at every access, each on with probability intensity / 255.
    """

    bits: Array
    intensities: Array | None = None


class BinaryImages(pl.LightningDataModule, ABC):
    """Binary images in memory, served in batches that are a pure function of the seed and the position.

    A data set of your own is a subclass with `shape`, `counts` and `load`; `--data your_module.YourClass` trains on it.
    In return this class promises batches of (B, data_size) float32 that hold nothing but 0 and 1. It checks that once,
    when the images are loaded, so that no training step has to.

    Args:
        batch_size: training images per step and device.
        eval_batch_size: validation and test images per batch and device.
        seed: of the order of the training images and of the bits that are drawn again.

    Attributes:
        shape: height and width of an image.
        counts: number of images in each split.
    """

    shape: tuple[int, int]
    counts: Counts

    def __init__(self, batch_size: int = 100, eval_batch_size: int = 500, seed: int = 0) -> None:
        super().__init__()
        for name, size in (("batch_size", batch_size), ("eval_batch_size", eval_batch_size)):
            if type(size) is not int or not 1 <= size <= self.counts.train:
                raise ValueError(
                    f"{name} is {size!r}, expected a whole number from 1 to {self.counts.train:,}; choose one of them"
                )
        self.batch_size = batch_size
        self.eval_batch_size = eval_batch_size
        self.seed = seed
        self._loaded: Images | None = None

    @abstractmethod
    def load(self) -> Images:
        """Read all images. Called once per process, after `prepare_data`, which may download what this reads."""

    @property
    def data_size(self) -> int:
        """Pixels per image."""
        return self.shape[0] * self.shape[1]

    def setup(self, stage: str) -> None:
        """Read the images into memory (on every process), once."""
        self._all()

    def images(self, split: Split) -> Array:
        """The frozen bits of a split in their own order, (N, data_size) uint8."""
        place = SPLITS.index(split)
        start = sum(self.counts[:place])
        return self._all().bits[start : start + self.counts[place]]

    def training_images(self, at_least: int) -> Tensor:
        """The frozen bits of all training images in their own order, (N, data_size) uint8.

        ValueError if there are fewer than `at_least`.
        """
        self.check_training_count(at_least)
        return torch.from_numpy(self.images("train"))

    def check_training_count(self, num_images: int) -> None:
        """Raise ValueError unless there are that many training images."""
        if num_images > self.counts.train:
            raise ValueError(
                f"num_images is {num_images:,}, expected at most the {self.counts.train:,} training images of "
                f"{type(self).__name__}; choose fewer"
            )

    @cached_property
    def mean(self) -> Tensor:
        """Expectation of each pixel over the training images, (data_size,) float32; centring subtracts it."""
        intensities = self._all().intensities
        seen, largest = (self.images("train"), 1) if intensities is None else (intensities, 255)
        return torch.from_numpy((seen.mean(0, dtype=np.float64) / largest).astype(np.float32))

    @cached_property
    def checksum(self) -> str:
        """SHA-256 of the packed bits; if training bits are redrawn, of the intensities and the other packed bits."""
        bits, intensities = self._all()
        if intensities is None:
            return sha256_of_bits(bits)
        frozen = np.packbits(bits[self.counts.train :])
        sha256 = hashlib.sha256(np.ascontiguousarray(intensities).data)
        sha256.update(frozen.data)
        return sha256.hexdigest()

    def train_dataloader(self) -> TrainLoader:
        """Serve the shuffled training images, starting where the trainer is."""
        intensities = self._all().intensities
        rank, world_size = self._rank_and_world_size()
        return TrainLoader(
            images=self.images("train") if intensities is None else intensities,
            batch_size=self.batch_size,
            rank=rank,
            world_size=world_size,
            seed=self.seed,
            redrawn=intensities is not None,
            position=self._batches_trained(),
            batches_trained=self._batches_trained if self.trainer else None,
        )

    def eval_loader(self, split: Split, batch_size: int | None = None) -> EvalLoader:
        """Serve a split in its own order, the training images too; `batch_size` is `eval_batch_size` by default."""
        rank, world_size = self._rank_and_world_size()
        size = self.eval_batch_size if batch_size is None else batch_size
        return EvalLoader(images=self.images(split), batch_size=size, rank=rank, world_size=world_size)

    def val_dataloader(self) -> EvalLoader:
        """Serve the validation images."""
        return self.eval_loader("val")

    def test_dataloader(self) -> EvalLoader:
        """Serve the test images."""
        return self.eval_loader("test")

    def predict_dataloader(self) -> EvalLoader:
        """Serve the test images."""
        return self.eval_loader("test")

    def _all(self) -> Images:
        if self._loaded is None:
            rank_zero_only(self.prepare_data)()  # the Trainer does so too, but not everybody who reads has one
            images = self.load()
            self._check(images)
            self._loaded = images
        return self._loaded

    def _check(self, images: Images) -> None:
        expected = {"bits": (sum(self.counts), 1), "intensities": (self.counts.train, 255)}
        for (name, (count, largest)), array in zip(expected.items(), images, strict=True):
            if array is None:
                continue
            if array.shape != (count, self.data_size) or array.dtype != np.uint8 or array.max() > largest:
                raise ValueError(
                    f"{type(self).__name__}.load gave {name} of shape {array.shape} and type {array.dtype} with "
                    f"{array.max()} the largest, expected {(count, self.data_size)}, uint8 and at most {largest}; "
                    "correct load, shape or counts"
                )

    def _rank_and_world_size(self) -> tuple[int, int]:
        return (self.trainer.global_rank, self.trainer.world_size) if self.trainer else (0, 1)

    def _batches_trained(self) -> int:
        """Training batches that the trainer has finished.

        It saves this number in every checkpoint and restores it before it asks for the loader. Its count of epochs is
        of no use: a run that max_steps ends within an epoch counts that epoch as done.
        """
        if self.trainer is None:
            return 0
        return int(self.trainer.fit_loop.epoch_loop.batch_progress.state_dict()["total"]["processed"])


def training_mean(data: object, shape: torch.Size) -> Tensor:
    """The mean that centres the inputs; ValueError if the data have none, because the net would train uncentred."""
    mean = getattr(data, "mean", None)
    if not isinstance(mean, Tensor) or mean.shape != shape:
        got = f"a mean of shape {tuple(mean.shape)}" if isinstance(mean, Tensor) else "no mean"
        raise ValueError(
            f"the data ({type(data).__name__}) have {got}, expected the training mean of {shape.numel()} pixels; train "
            "with trainer.fit(module, datamodule=...), a BinaryImages of as many pixels as the module's data_size"
        )
    return mean
