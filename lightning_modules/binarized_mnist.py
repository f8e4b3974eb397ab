"""Binarised MNIST."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

import numpy as np
from torchvision.datasets import MNIST

from lightning_modules.binary_images import Images
from lightning_modules.data_parts.bits import sha256_of_bits
from lightning_modules.data_parts.larochelle import find_larochelle, read_larochelle
from lightning_modules.data_parts.mnist_family import MNISTFamily

Binarization = Literal["fixed", "dynamic", "larochelle"]

FIXED_BITS_SHA256 = "140d058b879cc230b8db13dd391e88512e34368949169cbef3f7754fe90e52fc"


class BinarizedMNIST(MNISTFamily):
    """MNIST with binary pixels: 50,000 training, 10,000 validation and 10,000 test images as (B, 784) float32.

    Args:
        data_dir: folder that holds MNIST/raw (and larochelle/); by default the repository's own `data`, which also
            serves the archives that another folder lacks; without the repository, `data` in the current folder.
        binarization: "dynamic" redraws the training bits at every access, and draws validation and test bits once, the
            same for everyone; "fixed" draws all bits once; "larochelle" reads the .amat files in `data_dir`/larochelle.
        batch_size: training images per step and device.
        eval_batch_size: validation and test images per batch and device.
        seed: of the order of the training images and of the redrawn bits. The fixed bits do not depend on it.
    """

    dataset = MNIST
    binarizations = get_args(Binarization)

    def __init__(
        self,
        data_dir: str | Path | None = None,
        binarization: Binarization = "dynamic",
        batch_size: int = 100,
        eval_batch_size: int = 500,
        seed: int = 0,
    ) -> None:
        own = "fixed" if binarization == "larochelle" else binarization
        super().__init__(data_dir, own, batch_size, eval_batch_size, seed)
        self.binarization = binarization

    def prepare_data(self) -> None:
        """Make sure that the files are there (on one process per node)."""
        if self.binarization == "larochelle":
            find_larochelle(self.data_dir)
        else:
            super().prepare_data()

    def load(self) -> Images:
        """Read the archives and draw the bits, or read Larochelle's."""
        if self.binarization == "larochelle":
            return Images(read_larochelle(self.data_dir, self.counts, self.data_size))
        images = super().load()
        if (sha256 := sha256_of_bits(images.bits)) != FIXED_BITS_SHA256:
            raise RuntimeError(
                f"the fixed bits have SHA-256 {sha256}, expected {FIXED_BITS_SHA256}; install the numpy named in "
                f"tests/constraints.txt in place of {np.__version__}"
            )
        return images
