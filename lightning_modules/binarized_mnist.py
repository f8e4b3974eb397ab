"""Binarised MNIST in memory, served in batches that are a pure function of (seed, position)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import pytorch_lightning as pl
import torch
from torch import Tensor

from lightning_modules.mnist import files as mnist_files
from lightning_modules.mnist.files import (
    FIXED_BITS_SHA256,
    REPOSITORY_DATA,
    find_larochelle,
    fixed_bits,
    prepare_mnist,
    read_larochelle,
    read_pixels,
    sha256_of_bits,
)
from releg.seeds import seed_for

Binarization = Literal["fixed", "dynamic", "larochelle"]
Split = Literal["train", "val", "test"]

SPLITS: dict[Split, slice] = {"train": slice(0, 50_000), "val": slice(50_000, 60_000), "test": slice(60_000, 70_000)}


Images = npt.NDArray[np.uint8]
Rows = npt.NDArray[np.int64]


_DRAWN: dict[tuple[int, str], Images] = {}  # fixed bits, by seed and intensities: the last ones


def _drawn_once(pixels: Images) -> Images:
    """fixed_bits; data modules of one process share them, which saves each later one half a second and 55 MB."""
    key = (mnist_files.BINARIZATION_SEED, hashlib.sha256(pixels.data).hexdigest())
    if key not in _DRAWN:
        _DRAWN.clear()
        _DRAWN[key] = fixed_bits(pixels)
    return _DRAWN[key]


def redraw(pixels: Images, seed: int) -> npt.NDArray[np.bool_]:
    """Bits (B, 784), each on with probability exactly pixel / 255, from the stream of `seed`.

    A byte below 255 is less than `pixel` with that probability; the one value in 256 that is too large is drawn again.
    Only PCG64's raw output is used, which numpy promises never to change.
    """
    stream = np.random.PCG64(seed)

    def draw(count: int) -> Images:
        return stream.random_raw(-(-count // 8)).view(np.uint8)[:count]

    byte = draw(pixels.size)
    again = np.flatnonzero(byte == 255)
    while again.size:
        byte[again] = draw(again.size)
        again = again[byte[again] == 255]
    return byte.reshape(pixels.shape) < pixels


@dataclass(kw_only=True, eq=False)
class BatchLoader:
    """What the loaders share. A batch is one index operation on images in memory and one conversion.

    Both by numpy: on arrays this small torch's threads gain nothing, and lose milliseconds when the cores are taken.

    Args:
        images: (N, 784) uint8, bits, or intensities if `dynamic`.
        batch_size: images per batch and rank.
        seed: of the order and the dynamic bits.
        dynamic: whether to draw each bit at every access.
        rank: which part of each global batch, `batch_size * world_size` images, to serve.
        world_size: number of parts.
        batches_trained: the trainer's count of finished batches; without a trainer there is none.
    """

    images: Images
    batch_size: int
    seed: int
    dynamic: bool = False
    rank: int = 0
    world_size: int = 1
    batches_trained: Callable[[], int] | None = None

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ValueError(
                f"batch_size is {self.batch_size}, expected 1 or more; choose how many images to serve at once"
            )

    def _batch(self, rows: Rows, split: Split, *position: int) -> Tensor:
        """This rank's part (B, 784) float32 of the global batch made of `rows`.

        A dynamic batch is drawn whole on every rank: its bits do not depend on the number of ranks.
        """
        mine = slice(self.rank * len(rows) // self.world_size, (self.rank + 1) * len(rows) // self.world_size)
        if not self.dynamic:
            return torch.from_numpy(self.images.take(rows[mine], axis=0).astype(np.float32))
        bits = redraw(self.images.take(rows, axis=0), seed_for(self.seed, "pixels", split, *position))
        return torch.from_numpy(bits[mine].astype(np.float32))


@dataclass(kw_only=True, eq=False)
class TrainLoader(BatchLoader):
    """The training images as an endless stream of shuffled batches; one pass serves the next `len(self)` of them.

    Batch `position` of the stream is batch k of epoch e, with e, k = divmod(position, len(self)). Epoch e is a
    permutation seeded by (seed, "order", e). So the stream goes on where it stopped, whatever a trainer calls an epoch,
    and `position` is all there is to restore. For the same global batch it is the same on any number of ranks. One rank
    also serves the last, smaller batch of an epoch; several leave it out and stay in step.
    """

    position: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._order: tuple[int, Rows] | None = None  # epoch and its permutation
        if len(self) == 0:
            raise ValueError(
                f"batch_size {self.batch_size} on {self.world_size} ranks takes {self.batch_size * self.world_size:,} "
                f"images per step, expected at most {len(self.images):,}; choose a smaller batch_size"
            )

    def __len__(self) -> int:
        """Batches per epoch."""
        whole, rest = divmod(len(self.images), self.batch_size * self.world_size)
        return whole + (rest > 0 and self.world_size == 1)

    def __iter__(self) -> Iterator[Tensor]:
        """The next `len(self)` batches, each (B, 784) float32."""
        size = self.batch_size * self.world_size
        for _ in range(len(self)):
            epoch, k = divmod(self.position, len(self))
            self.position += 1
            yield self._batch(self._permutation(epoch)[k * size : (k + 1) * size], "train", epoch, k)

    def _permutation(self, epoch: int) -> Rows:
        if self._order is None or self._order[0] != epoch:
            # RandomState's shuffle, like PCG64's raw output, is promised never to change
            stream = np.random.RandomState(np.random.PCG64(seed_for(self.seed, "order", epoch)))
            self._order = epoch, stream.permutation(len(self.images))
        return self._order[1]

    def state_dict(self) -> dict[str, int]:
        """Position for a checkpoint. The trainer's count leaves out a batch whose step an exception ended."""
        return {"position": self.batches_trained() if self.batches_trained else self.position}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Go on from a stored position."""
        self.position = state_dict["position"]


@dataclass(kw_only=True, eq=False)
class EvalLoader(BatchLoader):
    """A split in its own order, all of it, in batches of nearly equal size and equally many on every rank.

    Dynamic bits depend on the progress of training and on how often the loader was used since it last changed: they
    differ from pass to pass, and yet a run that was interrupted sees what it would have seen.
    """

    split: Split

    def __post_init__(self) -> None:
        super().__post_init__()
        self._last_pass = (-1, 0)  # batches trained at its time; passes before it at that time
        self._order = np.arange(len(self.images))

    def __len__(self) -> int:
        """Batches per pass."""
        return -(-len(self.images) // (self.batch_size * self.world_size))

    def __iter__(self) -> Iterator[Tensor]:
        """All batches, each (B, 784) float32."""
        trained = self.batches_trained() if self.batches_trained else 0
        self._last_pass = (trained, self._last_pass[1] + 1 if self._last_pass[0] == trained else 0)
        this_pass = self._last_pass
        for k in range(len(self)):
            start, stop = (len(self.images) * i // len(self) for i in (k, k + 1))
            yield self._batch(self._order[start:stop], self.split, *this_pass, k)


class BinarizedMNIST(pl.LightningDataModule):
    """MNIST with binary pixels: 50,000 training, 10,000 validation and 10,000 test images as (B, 784) float32.

    Args:
        data_dir: folder that holds MNIST/raw (and larochelle/). By default the repository's own `data`; archives that
            another folder lacks are copied there from the repository.
        binarization: "fixed" draws each pixel once, the same for everyone; "dynamic" draws it again at every access;
            "larochelle" reads the .amat files in `data_dir`/larochelle.
        batch_size: training images per step and device.
        eval_batch_size: validation and test images per batch and device.
        seed: of the order of the training images and of the dynamic bits. The fixed bits do not depend on it.
    """

    def __init__(
        self,
        data_dir: str | Path | None = None,
        binarization: Binarization = "fixed",
        batch_size: int = 100,
        eval_batch_size: int = 500,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if binarization not in get_args(Binarization):
            choices = ", ".join(get_args(Binarization))
            raise ValueError(f"binarization is {binarization!r}, expected one of {choices}; leave it out for fixed")
        sizes = (("batch_size", batch_size, 50_000, 100), ("eval_batch_size", eval_batch_size, 10_000, 500))
        for name, size, most, default in sizes:
            if type(size) is not int or not 1 <= size <= most:
                raise ValueError(
                    f"{name} is {size!r}, expected a whole number from 1 to {most:,}; leave it out for {default}"
                )
        if type(seed) is not int:
            raise ValueError(f"seed is {seed!r}, expected a whole number; leave it out for 0")
        self.data_dir = REPOSITORY_DATA if data_dir is None else Path(data_dir).expanduser()
        self.binarization = binarization
        self.batch_size = batch_size
        self.eval_batch_size = eval_batch_size
        self.seed = seed
        self._images: Images | None = None  # (70000, 784) uint8
        self._checksum = ""

    def prepare_data(self) -> None:
        """Have the files in place (on one process per node)."""
        if self.binarization == "larochelle":
            find_larochelle(self.data_dir)
        else:
            prepare_mnist(self.data_dir)

    def setup(self, stage: str) -> None:
        """Read the images into memory (on every process), once."""
        self._all_images()

    def _all_images(self) -> Images:
        if self._images is None:
            match self.binarization:
                case "fixed":
                    images = _drawn_once(read_pixels(self.data_dir))
                    self._checksum = sha256_of_bits(images)
                    if self._checksum != FIXED_BITS_SHA256:
                        raise RuntimeError(
                            f"the fixed bits have SHA-256 {self._checksum}, expected {FIXED_BITS_SHA256}; install the "
                            f"numpy named in tests/constraints.txt in place of {np.__version__}"
                        )
                case "dynamic":
                    images = read_pixels(self.data_dir)
                    self._checksum = hashlib.sha256(images.data).hexdigest()
                case "larochelle":
                    images = read_larochelle(self.data_dir)
                    self._checksum = sha256_of_bits(images)
            self._images = images
        return self._images

    @property
    def checksum(self) -> str:
        """SHA-256 of all 70,000 images in use: of the packed bits, or of the intensities if dynamic."""
        self._all_images()
        return self._checksum

    @property
    def mean(self) -> Tensor:
        """Mean of each pixel over the training images, (784,) float32; what centring subtracts."""
        mean = self.images("train").mean(0, dtype=np.float64)
        return torch.from_numpy((mean / (255 if self.binarization == "dynamic" else 1)).astype(np.float32))

    def images(self, split: Split) -> Images:
        """Images of a split in their own order, (N, 784) uint8: 0 or 1, or intensities up to 255 if dynamic."""
        return self._all_images()[SPLITS[split]]

    def train_dataloader(self) -> TrainLoader:
        """The shuffled training images, from where the trainer stands."""
        rank, world_size = self._rank_and_world_size()
        return TrainLoader(
            images=self.images("train"),
            batch_size=self.batch_size,
            seed=self.seed,
            dynamic=self.binarization == "dynamic",
            rank=rank,
            world_size=world_size,
            batches_trained=self._batches_trained if self.trainer else None,
            position=self._batches_trained(),
        )

    def eval_loader(self, split: Split, batch_size: int | None = None) -> EvalLoader:
        """A split, be it the training images, in its own order; `batch_size` is `eval_batch_size` by default."""
        rank, world_size = self._rank_and_world_size()
        return EvalLoader(
            images=self.images(split),
            batch_size=self.eval_batch_size if batch_size is None else batch_size,
            seed=self.seed,
            dynamic=self.binarization == "dynamic",
            rank=rank,
            world_size=world_size,
            batches_trained=self._batches_trained,
            split=split,
        )

    def val_dataloader(self) -> EvalLoader:
        """The validation images."""
        return self.eval_loader("val")

    def test_dataloader(self) -> EvalLoader:
        """The test images."""
        return self.eval_loader("test")

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
