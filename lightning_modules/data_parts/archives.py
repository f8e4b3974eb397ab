"""The archives of MNIST and its kin: on disk or downloaded, checked, and read into arrays."""

from __future__ import annotations

import gzip
import hashlib
import tempfile
from http.client import HTTPException
from pathlib import Path

import numpy as np
from torchvision.datasets import MNIST

from lightning_modules import ROOT
from lightning_modules.data_parts.bits import Array
from releg.files import write_atomically

IS_CLONE = (ROOT / "data" / "README.md").is_file()
REPOSITORY_DATA = ROOT / "data" if IS_CLONE else Path("data")  # of an installed package: in the current folder
HEADER = 16  # bytes before the pixels of an idx file: magic number, images, rows, columns, four bytes each
FILES = ("train-images-idx3-ubyte", "t10k-images-idx3-ubyte")


def fetch(dataset: type[MNIST], data_dir: Path) -> None:
    """Let torchvision download the archives of images if neither `data_dir` nor the repository has them.

    Args:
        dataset: torchvision's class: MNIST, or one that uses the same four files.
        data_dir: folder that holds <name of the class>/raw.
    """
    raw = _raw(dataset, data_dir)
    with tempfile.TemporaryDirectory() as scratch:
        missing = [f"{name}.gz" for name in FILES if not _archive(dataset, data_dir, name).exists()]
        if not missing:
            return
        if data_dir is REPOSITORY_DATA and not IS_CLONE:  # nobody named a folder, so nothing is put anywhere
            raise FileNotFoundError(
                f"expected {dataset.__name__}'s archives in {raw.absolute()}, got no {', '.join(missing)}; copy them "
                "there, or name a folder by --data.data_dir: what it lacks is downloaded"
            )
        try:
            dataset(scratch, download=True)
        except (RuntimeError, OSError, HTTPException) as error:
            reason = " ".join(str(error).split())
            raise FileNotFoundError(
                f"expected {dataset.__name__}'s archives in {raw}, got no {', '.join(missing)}, and downloading failed "
                f"({reason}); copy them there{_git_has(dataset)}"
            ) from error
        for name in missing:
            write_atomically(raw / name, (_raw(dataset, Path(scratch)) / name).read_bytes())


def read_pixels(dataset: type[MNIST], data_dir: Path) -> Array:
    """Read the intensities of all images, the training file's before the test file's, as (N, data_size)."""
    fetch(dataset, data_dir)
    return np.concatenate([_rows_of_pixels(_unpacked(dataset, data_dir, name)) for name in FILES])


def _rows_of_pixels(idx: bytes) -> Array:
    """One row per image, as long as the file's header says."""
    rows, columns = (int.from_bytes(idx[at : at + 4], "big") for at in (8, 12))
    return np.frombuffer(idx, np.uint8, offset=HEADER).reshape(-1, rows * columns)


def _unpacked(dataset: type[MNIST], data_dir: Path, name: str) -> bytes:
    """The content of a file; ValueError unless its archive is the one that torchvision knows."""
    archive = _archive(dataset, data_dir, name)
    packed = archive.read_bytes()
    md5, expected = hashlib.md5(packed).hexdigest(), dict(dataset.resources)[archive.name]
    if md5 != expected:
        raise ValueError(
            f"{archive} has MD5 {md5} ({len(packed):,} bytes), expected {expected}; delete it{_git_has(dataset)}"
        )
    return gzip.decompress(packed)


def _raw(dataset: type[MNIST], data_dir: Path) -> Path:
    return data_dir / dataset.__name__ / "raw"  # as torchvision has it


def _archive(dataset: type[MNIST], data_dir: Path, name: str) -> Path:
    """Where the archive is: in `data_dir`, or else in the repository."""
    own, shipped = (_raw(dataset, folder) / f"{name}.gz" for folder in (data_dir, REPOSITORY_DATA))
    return own if own.exists() or not shipped.exists() else shipped


def _git_has(dataset: type[MNIST]) -> str:
    return " or run `git checkout -- data/MNIST/raw` in the repository" if dataset is MNIST else ""
