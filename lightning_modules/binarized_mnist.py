"""Binarised MNIST."""

from __future__ import annotations

from typing import get_args

import numpy as np
from torchvision.datasets import MNIST

from lightning_modules.binary_images import Images
from lightning_modules.data_parts.bits import sha256_of_bits
from lightning_modules.data_parts.larochelle import find_larochelle, read_larochelle
from lightning_modules.data_parts.mnist_family import Binarization, MNISTFamily

FIXED_BITS_SHA256 = "140d058b879cc230b8db13dd391e88512e34368949169cbef3f7754fe90e52fc"


class BinarizedMNIST(MNISTFamily):
    """MNIST with binary pixels: 50,000 training, 10,000 validation and 10,000 test images as (B, 784) float32.

    Larochelle's bits are read from the .amat files in `data_dir`/larochelle.
    """

    dataset = MNIST
    binarizations = get_args(Binarization)

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
