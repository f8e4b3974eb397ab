"""The bits of MNIST that Hugo Larochelle published, as text files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lightning_modules.binary_images import Counts
from lightning_modules.data_parts.bits import Array

URL = "http://www.cs.toronto.edu/~larocheh/public/datasets/binarized_mnist/"


def read_larochelle(data_dir: Path, counts: Counts, data_size: int) -> Array:
    """Read the bits of all splits one after the other, as (N, data_size)."""
    files = find_larochelle(data_dir)
    return np.concatenate([_read_amat(path, rows, data_size) for path, rows in zip(files, counts, strict=True)])


def find_larochelle(data_dir: Path) -> list[Path]:
    """Find the three .amat files: train, valid and test."""
    folder = data_dir / "larochelle"
    files = [folder / f"binarized_mnist_{split}.amat" for split in ("train", "valid", "test")]
    missing = [path.name for path in files if not path.exists()]
    if missing:
        raise FileNotFoundError(
            f"binarization larochelle expected {', '.join(path.name for path in files)} in {folder}, "
            f"got no {', '.join(missing)}; download from {URL}"
        )
    return files


def _read_amat(path: Path, rows: int, pixels: int) -> Array:
    """Read one .amat file as (rows, pixels): zeros and ones between white space."""
    digits = np.frombuffer(path.read_bytes(), np.uint8)
    digits = digits[digits > ord(" ")] - np.uint8(ord("0"))
    if digits.size != rows * pixels or digits.max() > 1:
        raise ValueError(
            f"{path} has {digits.size:,} values up to {digits.max(initial=0)}, expected {rows:,} x {pixels} zeros and "
            f"ones; download it again from {URL}"
        )
    return digits.reshape(rows, pixels)
