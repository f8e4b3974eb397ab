"""Files of MNIST and its kin: from archives on disk, or on the network, to arrays that are known to be whole."""

from __future__ import annotations

import errno
import gzip
import hashlib
import logging
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path

import numpy as np
from torchvision.datasets import MNIST

from lightning_modules.mnist.bits import Array
from releg.files import write_atomically

log = logging.getLogger(__name__)

REPOSITORY_DATA = Path(__file__).parents[2] / "data"
PIXELS = 784
HEADER = 16  # bytes before the pixels of an idx file
FILES = ("train-images-idx3-ubyte", "t10k-images-idx3-ubyte")

LAROCHELLE_URL = "http://www.cs.toronto.edu/~larocheh/public/datasets/binarized_mnist/"
LAROCHELLE_ROWS = {"train": 50_000, "valid": 10_000, "test": 10_000}


def fetch(dataset: type[MNIST], data_dir: Path) -> None:
    """Let torchvision download the archives of images if neither `data_dir` nor the repository has them.

    Args:
        dataset: torchvision's class: MNIST, or one that uses the same four files.
        data_dir: folder that holds <name of the class>/raw.
    """
    raw = _raw(dataset, data_dir)
    with _os_errors_in_one_sentence(raw), tempfile.TemporaryDirectory() as scratch:
        missing = [f"{name}.gz" for name in FILES if not _archive(dataset, data_dir, name).exists()]
        if not missing:
            return
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
    """Read the intensities of all images, the training file's before the test file's, as (N, 784)."""
    fetch(dataset, data_dir)
    with _os_errors_in_one_sentence(_raw(dataset, data_dir)):
        files = [np.frombuffer(_unpacked(dataset, data_dir, name), np.uint8, offset=HEADER) for name in FILES]
    return np.concatenate(files).reshape(-1, PIXELS)


def _unpacked(dataset: type[MNIST], data_dir: Path, name: str) -> bytes:
    """Content of a file: its unpacked copy, or its archive where that copy is missing or damaged.

    The copy saves half a second at every later start; where it cannot be written, nothing is lost.
    """
    copy, archive = _raw(dataset, data_dir) / name, _archive(dataset, data_dir, name)
    packed = archive.read_bytes()
    if copy.exists():
        content = copy.read_bytes()
        # gzip keeps the CRC-32 and the length of what it packed
        if packed[-8:] == zlib.crc32(content).to_bytes(4, "little") + len(content).to_bytes(4, "little"):
            return content
        log.warning("%s is truncated or altered: unpacking it again from its archive", copy)
    md5, expected = hashlib.md5(packed).hexdigest(), dict(dataset.resources)[archive.name]
    if md5 != expected:
        raise ValueError(
            f"{archive} has MD5 {md5} ({len(packed):,} bytes), expected {expected}; delete it{_git_has(dataset)}"
        )
    content = gzip.decompress(packed)
    with suppress(OSError):
        write_atomically(copy, content)
    return content


def _raw(dataset: type[MNIST], data_dir: Path) -> Path:
    return data_dir / dataset.__name__ / "raw"  # as torchvision has it


def _archive(dataset: type[MNIST], data_dir: Path, name: str) -> Path:
    """Where the archive is: in `data_dir`, or else in the repository."""
    here, there = (_raw(dataset, folder) / f"{name}.gz" for folder in (data_dir, REPOSITORY_DATA))
    return here if here.exists() or not there.exists() else there


def _git_has(dataset: type[MNIST]) -> str:
    return " or run `git checkout -- data/MNIST/raw` in the repository" if dataset is MNIST else ""


def read_larochelle(data_dir: Path) -> Array:
    """Read the bits published by Hugo Larochelle: train, valid and test one after the other, as (70000, 784)."""
    return np.concatenate([_read_amat(path, rows) for path, rows in find_larochelle(data_dir).items()])


def find_larochelle(data_dir: Path) -> dict[Path, int]:
    """Find the three .amat files; each path with its number of images."""
    folder = data_dir / "larochelle"
    files = {folder / f"binarized_mnist_{split}.amat": rows for split, rows in LAROCHELLE_ROWS.items()}
    with _os_errors_in_one_sentence(folder):
        missing = [path.name for path in files if not path.exists()]
    if missing:
        raise FileNotFoundError(
            f"binarization larochelle expected {', '.join(path.name for path in files)} in {folder}, "
            f"got no {', '.join(missing)}; download from {LAROCHELLE_URL}"
        )
    return files


def _read_amat(path: Path, rows: int) -> Array:
    """Read one .amat file as (rows, 784): one line per image, zeros and ones between single spaces."""
    with _os_errors_in_one_sentence(path.parent):
        text = path.read_bytes()
    line = 2 * PIXELS  # bytes, as each pixel is followed by a space or, the last one, by the line's end
    if len(text) != rows * line:  # perhaps only in its white space
        lines = [b" ".join(words) for words in map(bytes.split, text.splitlines()) if words]
        text = b"".join(words + b"\n" for words in lines)
        widths = {(len(words) + 1) // 2 for words in lines}
        if len(lines) != rows or widths != {PIXELS}:
            columns = " to ".join(str(width) for width in sorted({min(widths, default=0), max(widths, default=0)}))
            raise ValueError(
                f"{path} has {len(lines):,} lines of {columns} values, expected {rows:,} lines of {PIXELS}; "
                f"download it again from {LAROCHELLE_URL}"
            )
    table = np.frombuffer(text, np.uint8).reshape(rows, PIXELS, 2)
    digits, separators = table[:, :, 0], table[:, :, 1]
    well_formed = (digits | 1 == ord("1")) & (separators == np.frombuffer(b" " * (PIXELS - 1) + b"\n", np.uint8))
    if not well_formed.all():
        row, column = np.argwhere(~well_formed)[0]
        raise ValueError(
            f"{path} line {row + 1} value {column + 1} is {bytes(table[row, column])!r}, expected 0 or 1 and a space "
            f"or the line's end; download it again from {LAROCHELLE_URL}"
        )
    return digits & np.uint8(1)


@contextmanager
def _os_errors_in_one_sentence(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno is None:  # already a sentence of ours
            raise
        kind = PermissionError if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS) else OSError
        raise kind(
            f"expected {folder} to be a folder that can be read, got {error.strerror!r} at "
            f"{error.filename}; correct that or choose another place with data_dir"
        ) from error
