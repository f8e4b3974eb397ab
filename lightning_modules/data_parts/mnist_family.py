"""Data sets that come in MNIST's four files: reads the grey images and draws their bits."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import ClassVar, Literal

from torchvision.datasets import MNIST

from lightning_modules.binary_images import BinaryImages, Counts, Images
from lightning_modules.data_parts.archives import REPOSITORY_DATA, fetch, read_pixels
from lightning_modules.data_parts.bits import shared_fixed_bits

Binarization = Literal["fixed", "dynamic", "larochelle"]


class MNISTFamily(BinaryImages):
    """Binary pixels drawn from MNIST or a data set in the same files. A subclass names torchvision's class.

    Args:
        data_dir: folder that holds <name of torchvision's class>/raw; torchvision downloads missing archives to it. By
            default the repository's own `data`, which also serves the archives that another folder lacks; where the
            package is installed without the repository, `data` in the current folder.
        binarization: "dynamic" redraws the training bits at every access, and draws validation and test bits once, the
            same for everyone; "fixed" draws all bits once; "larochelle", of MNIST alone, reads the .amat files in
            `data_dir`/larochelle.
        batch_size: training images per step and device.
        eval_batch_size: validation and test images per batch and device.
        seed: of the order of the training images and of the redrawn bits. The fixed bits do not depend on it.

    Attributes:
        binarizations: the choices of `binarization`.
    """

    binarizations: ClassVar[tuple[str, ...]] = ("fixed", "dynamic")
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
        if binarization not in self.binarizations:
            choices = ", ".join(self.binarizations)
            raise ValueError(f"binarization is {binarization!r}, expected one of {choices}; choose one of them")
        self.data_dir = REPOSITORY_DATA if data_dir is None else Path(data_dir).expanduser()
        self.binarization: str = binarization

    @property
    @abstractmethod
    def dataset(self) -> type[MNIST]:
        """torchvision's class."""

    def prepare_data(self) -> None:
        """Make sure that the archives are there (on one process per node)."""
        fetch(self.dataset, self.data_dir)

    def load(self) -> Images:
        """Read the archives and draw the bits."""
        pixels = read_pixels(self.dataset, self.data_dir)
        return Images(
            shared_fixed_bits(pixels), pixels[: self.counts.train] if self.binarization == "dynamic" else None
        )
