"""Files of binarised MNIST: from archives on disk to verified arrays. Nothing incomplete ever bears a final name."""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path

import numpy as np
import numpy.typing as npt
from torchvision.datasets import MNIST
from torchvision.datasets.utils import calculate_md5, check_integrity

log = logging.getLogger(__name__)

REPOSITORY_DATA = Path(__file__).parents[2] / "data"
PIXELS = 784

UNPACKED_SHA256 = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}

BINARIZATION_SEED = 2016
FIXED_BITS_SHA256 = "140d058b879cc230b8db13dd391e88512e34368949169cbef3f7754fe90e52fc"

LAROCHELLE_URL = "http://www.cs.toronto.edu/~larocheh/public/datasets/binarized_mnist/"
LAROCHELLE_ROWS = {"train": 50_000, "valid": 10_000, "test": 10_000}

_SCRATCH = ".unpacking-"
_SCRATCH_IS_STALE_AFTER = 3600.0  # seconds; unpacking takes one


def prepare_mnist(data_dir: Path) -> None:
    """Make sure that the four unpacked files are in `data_dir`/MNIST/raw and are MNIST's, byte for byte.

    May be called any number of times, also by several processes at once: each works in a folder of its own and moves
    complete files into place, so whoever comes last replaces a file by an equal one.
    """
    raw = data_dir / "MNIST" / "raw"
    with _os_errors_in_one_sentence(raw):
        damaged = [name for name, sha256 in UNPACKED_SHA256.items() if _sha256_of_file(raw / name) != sha256]
        if not damaged:
            return
        for name in damaged:
            if (raw / name).exists():
                log.warning("%s is truncated or altered: unpacking it again from its archive", raw / name)
        raw.mkdir(parents=True, exist_ok=True)
        _remove_stale_scratch(raw)
        with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=raw) as scratch:
            _unpack(raw, damaged, Path(scratch))


def read_pixels(data_dir: Path) -> npt.NDArray[np.uint8]:
    """Intensities of all images, the training file's 60,000 before the test file's 10,000, as (70000, 784)."""
    prepare_mnist(data_dir)
    files = [MNIST(data_dir, train=train).data.numpy() for train in (True, False)]
    return np.concatenate(files).reshape(-1, PIXELS)


def fixed_bits(pixels: npt.NDArray[np.uint8], chunk: int = 200) -> npt.NDArray[np.uint8]:
    """Every pixel on with its intensity as probability, drawn once and for ever; same shape as `pixels`, 0 or 1.

    One stream, one uniform number per pixel, `u < pixel / 255`. numpy promises that RandomState's stream never changes.
    """
    stream = np.random.RandomState(BINARIZATION_SEED)
    threshold = np.arange(256) / 255
    bits = np.empty(pixels.shape, np.bool_)
    for start in range(0, len(pixels), chunk):  # the chunk bounds memory; the stream does not depend on it
        part = pixels[start : start + chunk]
        np.less(stream.random_sample(part.shape), threshold[part], out=bits[start : start + chunk])
    return bits.view(np.uint8)


def sha256_of_bits(bits: npt.NDArray[np.uint8]) -> str:
    """SHA-256 of the bits, packed eight to a byte."""
    return hashlib.sha256(np.packbits(bits).data).hexdigest()


def read_larochelle(data_dir: Path) -> npt.NDArray[np.uint8]:
    """The bits published by Hugo Larochelle: train, valid and test one after the other, as (70000, 784)."""
    return np.concatenate([_read_amat(path, rows) for path, rows in find_larochelle(data_dir).items()])


def find_larochelle(data_dir: Path) -> dict[Path, int]:
    """Paths of the three .amat files, each with its number of images."""
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


def _read_amat(path: Path, rows: int) -> npt.NDArray[np.uint8]:
    """Images of one .amat file, as (rows, 784): one line per image, zeros and ones between single spaces."""
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


def _unpack(raw: Path, names: list[str], scratch: Path) -> None:
    """Let torchvision check and unpack the archives inside `scratch`, then move the files called `names` to `raw`."""
    scratch_raw = scratch / "MNIST" / "raw"
    scratch_raw.mkdir(parents=True)
    missing = []
    for archive, md5 in MNIST.resources:
        sources = [folder / archive for folder in (raw, REPOSITORY_DATA / "MNIST" / "raw")]
        source = next((path for path in sources if path.exists()), None)
        if source is None:
            missing.append(archive)
            continue
        copy = scratch_raw / archive
        shutil.copyfile(source, copy)
        if not check_integrity(copy, md5):
            raise ValueError(
                f"{source} has MD5 {calculate_md5(copy)} ({copy.stat().st_size:,} bytes), expected {md5}; delete it "
                f"and run `git checkout -- data/MNIST/raw` in the repository"
            )
    try:
        MNIST(scratch, download=True)  # downloads only what is missing
    except (RuntimeError, OSError, HTTPException) as error:
        if not missing:
            raise
        reason = " ".join(str(error).split())
        raise FileNotFoundError(
            f"expected MNIST's archives in {raw}, got no {', '.join(missing)}, and downloading failed ({reason}); run "
            f"`git checkout -- data/MNIST/raw` in the repository or copy them there"
        ) from error
    for name in names:
        sha256 = _sha256_of_file(scratch_raw / name)
        if sha256 != UNPACKED_SHA256[name]:
            raise OSError(
                f"{name} unpacked from a good archive has SHA-256 {sha256}, expected {UNPACKED_SHA256[name]}; "
                f"check the disk that holds {raw}"
            )
    for archive, _ in MNIST.resources:
        if not (raw / archive).exists():
            os.replace(scratch_raw / archive, raw / archive)
    for name in names:
        os.replace(scratch_raw / name, raw / name)


def _sha256_of_file(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError:
        return None


def _remove_stale_scratch(raw: Path) -> None:
    """Remove what killed processes left. A young folder may belong to a process that is still at work."""
    for folder in raw.glob(_SCRATCH + "*"):
        try:
            if time.time() - folder.stat().st_mtime > _SCRATCH_IS_STALE_AFTER:
                shutil.rmtree(folder, ignore_errors=True)
        except FileNotFoundError:  # another process was faster
            continue


@contextmanager
def _os_errors_in_one_sentence(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno is None:  # already a sentence of ours
            raise
        kind = PermissionError if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS) else OSError
        raise kind(
            f"expected {folder} to be a folder that can be read and written, got {error.strerror!r} at "
            f"{error.filename}; correct that or choose another place with data_dir"
        ) from error
