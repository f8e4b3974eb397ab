"""Batches of images in memory, as a pure function of the seed and the position."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lightning_modules.data_parts.bits import Array, redraw
from releg.seeds import seed_for

Rows = npt.NDArray[np.int64]


@dataclass(kw_only=True, eq=False)
class BatchLoader:
    """What both loaders share. A batch is one index operation on images in memory and one conversion.

    numpy does both: on arrays this small torch's threads gain nothing, and lose milliseconds on a busy machine.

    Args:
        images: (N, D) uint8, zeros and ones.
        batch_size: images per batch and rank.
        rank: which part of each global batch of `batch_size * world_size` images to serve.
        world_size: number of parts.
    """

    images: Array
    batch_size: int
    rank: int = 0
    world_size: int = 1

    def _mine(self, count: int) -> slice:
        """This rank's part of a global batch of `count` images."""
        return slice(self.rank * count // self.world_size, (self.rank + 1) * count // self.world_size)


@dataclass(kw_only=True, eq=False)
class TrainLoader(BatchLoader):
    """The training images as an endless stream of shuffled batches; one pass serves the next `len(self)` of them.

    Batch `position` of the stream is batch k of epoch e, with e, k = divmod(position, len(self)). Epoch e is a
    permutation seeded by (seed, "order", e). So the stream continues where it stopped, whatever a trainer calls an
    epoch, and `position` is all there is to restore. The global batches do not depend on the number of ranks. One rank
    also serves the last, smaller batch of an epoch; several leave it out to stay in step.

    Args:
        seed: of the order and of the redrawn bits.
        redrawn: whether `images` are intensities from 0 to 255 whose bits are drawn at every access.
        position: where in the stream to start.
        batches_trained: the trainer's count of finished batches, if there is a trainer.
    """

    seed: int
    redrawn: bool = False
    position: int = 0
    batches_trained: Callable[[], int] | None = None

    def __post_init__(self) -> None:
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
        """Serve the next `len(self)` batches, each (B, D) float32."""
        size = self.batch_size * self.world_size
        for _ in range(len(self)):
            epoch, k = divmod(self.position, len(self))
            self.position += 1
            yield self._batch(self._permutation(epoch)[k * size : (k + 1) * size], epoch, k)

    def _batch(self, rows: Rows, epoch: int, k: int) -> Tensor:
        """Every rank redraws the whole global batch, so its bits do not depend on the number of ranks."""
        part = self._mine(len(rows))
        if self.redrawn:
            bits = redraw(self.images.take(rows, axis=0), seed_for(self.seed, "pixels", "train", epoch, k))[part]
            return torch.from_numpy(bits.astype(np.float32))
        return torch.from_numpy(self.images.take(rows[part], axis=0).astype(np.float32))

    def _permutation(self, epoch: int) -> Rows:
        if self._order is None or self._order[0] != epoch:
            # numpy promises that RandomState's shuffle, like PCG64's raw output, never changes
            stream = np.random.RandomState(np.random.PCG64(seed_for(self.seed, "order", epoch)))
            self._order = epoch, stream.permutation(len(self.images))
        return self._order[1]

    def state_dict(self) -> dict[str, int]:
        """Position for a checkpoint. The trainer's count leaves out a batch whose step failed."""
        return {"position": self.batches_trained() if self.batches_trained else self.position}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Continue from a stored position."""
        self.position = state_dict["position"]


@dataclass(kw_only=True, eq=False)
class EvalLoader(BatchLoader):
    """A whole split in its own order, in batches of nearly equal size and equally many on every rank."""

    def __len__(self) -> int:
        """Batches per pass."""
        return -(-len(self.images) // (self.batch_size * self.world_size))

    def __iter__(self) -> Iterator[Tensor]:
        """Serve all batches, each (B, D) float32."""
        for k in range(len(self)):
            start, stop = (len(self.images) * i // len(self) for i in (k, k + 1))
            yield torch.from_numpy(self.images[start:stop][self._mine(stop - start)].astype(np.float32))
