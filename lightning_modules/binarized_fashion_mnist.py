"""Binarised Fashion-MNIST: a second data set, in the files and splits of MNIST."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

from torchvision.datasets import FashionMNIST

from lightning_modules.binary_images import BinaryImages, Counts, Images, check_binarization
from lightning_modules.mnist.bits import shared_fixed_bits
from lightning_modules.mnist.files import REPOSITORY_DATA, fetch, read_pixels

Binarization = Literal["fixed", "dynamic"]


class BinarizedFashionMNIST(BinaryImages):
    """Fashion-MNIST with binary pixels: 50,000 training, 10,000 validation and 10,000 test images as (B, 784) float32.

    Args:
        data_dir: folder that holds FashionMNIST/raw; torchvision downloads the archives to it if they are missing. By
            default the repository's own `data`.
        binarization: "dynamic" redraws the training bits at every access, and draws validation and test bits once, the
            same for everyone; "fixed" draws all bits once.
        batch_size: training images per step and device.
        eval_batch_size: validation and test images per batch and device.
        seed: of the order of the training images and of the redrawn bits. The fixed bits do not depend on it.
    """

    shape = (28, 28)
    counts = Counts(train=50_000, val=10_000, test=10_000)

    def __init__(
        self,
        data_dir: str | Path | None = None,
        binarization: Binarization = "dynamic",
        batch_size: int = 100,
        eval_batch_size: int = 500,
        seed: int = 0,
    ) -> None:
        super().__init__(batch_size, eval_batch_size, seed)
        check_binarization(binarization, get_args(Binarization))
        self.data_dir = REPOSITORY_DATA if data_dir is None else Path(data_dir).expanduser()
        self.binarization = binarization

    def prepare_data(self) -> None:
        """Have the archives in place (on one process per node)."""
        fetch(FashionMNIST, self.data_dir)

    def load(self) -> Images:
        """Read the archives and draw the bits."""
        pixels = read_pixels(FashionMNIST, self.data_dir)
        return Images(
            shared_fixed_bits(pixels), pixels[: self.counts.train] if self.binarization == "dynamic" else None
        )
