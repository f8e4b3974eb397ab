"""The bits of MNIST that Hugo Larochelle published, as text files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lightning_modules.binary_images import Counts
from lightning_modules.data_parts.archives import os_errors_in_one_sentence
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
    with os_errors_in_one_sentence(folder):
        missing = [path.name for path in files if not path.exists()]
    if missing:
        raise FileNotFoundError(
            f"binarization larochelle expected {', '.join(path.name for path in files)} in {folder}, "
            f"got no {', '.join(missing)}; download from {URL}"
        )
    return files


def _read_amat(path: Path, rows: int, pixels: int) -> Array:
    """Read one .amat file as (rows, pixels): one line per image, zeros and ones between single spaces."""
    with os_errors_in_one_sentence(path.parent):
        text = path.read_bytes()
    line = 2 * pixels  # bytes, as each pixel is followed by a space or, the last one, by the line's end
    if len(text) != rows * line:  # perhaps only in its white space
        lines = [b" ".join(words) for words in map(bytes.split, text.splitlines()) if words]
        text = b"".join(words + b"\n" for words in lines)
        widths = {(len(words) + 1) // 2 for words in lines}
        if len(lines) != rows or widths != {pixels}:
            columns = " to ".join(str(width) for width in sorted({min(widths, default=0), max(widths, default=0)}))
            raise ValueError(
                f"{path} has {len(lines):,} lines of {columns} values, expected {rows:,} lines of {pixels}; "
                f"download it again from {URL}"
            )
    table = np.frombuffer(text, np.uint8).reshape(rows, pixels, 2)
    digits, separators = table[:, :, 0], table[:, :, 1]
    well_formed = (digits | 1 == ord("1")) & (separators == np.frombuffer(b" " * (pixels - 1) + b"\n", np.uint8))
    if not well_formed.all():
        row, column = np.argwhere(~well_formed)[0]
        raise ValueError(
            f"{path} line {row + 1} value {column + 1} is {bytes(table[row, column])!r}, expected 0 or 1 and a space "
            f"or the line's end; download it again from {URL}"
        )
    return digits & np.uint8(1)
