from __future__ import annotations

import gzip
import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from torchvision.datasets import FashionMNIST

from lightning_modules.data_parts import archives
from lightning_modules.data_parts.archives import FILES, fetch, read_pixels
from tests.lightning_modules.data_parts.small_archives import assert_one_sentence, names_in, raw_folder, write_archives

ARCHIVES = sorted(f"{split}-{kind}-ubyte.gz" for split in ("train", "t10k") for kind in ("images-idx3", "labels-idx1"))
TRAINING_IMAGES = FILES[0]


@pytest.fixture
def pixels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """Of a small data set in `tmp_path`."""
    return write_archives(tmp_path, FashionMNIST, monkeypatch)


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    return raw_folder(tmp_path, FashionMNIST)


def read(folder: Path) -> np.ndarray:
    return read_pixels(FashionMNIST, folder)


def flipped(content: bytes) -> bytes:
    return content[:5000] + bytes([content[5000] ^ 1]) + content[5001:]


def test_pixels_are_those_that_torchvision_reads(tmp_path: Path, pixels: np.ndarray, raw: Path) -> None:
    assert np.array_equal(read(tmp_path), pixels)
    assert names_in(raw) == ARCHIVES, "nothing is written"
    train, test = (FashionMNIST(tmp_path, train=is_train, download=True).data.numpy() for is_train in (True, False))
    assert np.array_equal(np.concatenate([train, test]).reshape(-1, 784), pixels)


@pytest.mark.parametrize("damage", [lambda good: good[:5000], flipped, lambda good: gzip.compress(b"hello")])
def test_a_damaged_archive_is_named_with_both_checksums(
    tmp_path: Path, pixels: np.ndarray, raw: Path, damage: partial[bytes]
) -> None:
    archive = raw / f"{TRAINING_IMAGES}.gz"
    good = archive.read_bytes()
    bad = damage(good)
    archive.write_bytes(bad)
    with pytest.raises(ValueError, match="MD5") as error:
        read(tmp_path)
    got, expected = (hashlib.md5(content).hexdigest() for content in (bad, good))
    assert_one_sentence(error, str(archive), got, f"expected {expected}", f"{len(bad):,} bytes", "delete it")


def test_a_missing_archive_that_cannot_be_downloaded_is_one_sentence(
    tmp_path: Path, pixels: np.ndarray, raw: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FashionMNIST, "mirrors", ["http://127.0.0.1:9/"])
    (raw / f"{TRAINING_IMAGES}.gz").unlink()
    with pytest.raises(FileNotFoundError) as error:
        fetch(FashionMNIST, tmp_path)
    assert_one_sentence(error, str(raw), f"got no {TRAINING_IMAGES}.gz", "downloading failed")
    assert names_in(raw) == sorted({*ARCHIVES} - {f"{TRAINING_IMAGES}.gz"})


def test_a_missing_archive_is_downloaded(
    tmp_path: Path, pixels: np.ndarray, raw: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve = partial(SimpleHTTPRequestHandler, directory=str(raw))
    monkeypatch.setattr(SimpleHTTPRequestHandler, "log_message", lambda *args: None)
    with ThreadingHTTPServer(("127.0.0.1", 0), serve) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setattr(FashionMNIST, "mirrors", [f"http://127.0.0.1:{server.server_port}/"])
        fetch(FashionMNIST, tmp_path / "client")
        server.shutdown()
    assert names_in(raw_folder(tmp_path / "client", FashionMNIST)) == [f"{name}.gz" for name in sorted(FILES)]
    assert np.array_equal(read(tmp_path / "client"), pixels)


def test_another_folder_takes_the_archives_of_the_repository(
    tmp_path: Path, pixels: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "REPOSITORY_DATA", tmp_path)
    assert np.array_equal(read(tmp_path / "other"), pixels)
    assert not (tmp_path / "other").exists()


@contextmanager
def unprivileged() -> Iterator[None]:
    """Permissions do not bind root: be nobody for a while."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_read_only_checkout_is_only_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as name:  # pytest's own folders are private
        Path(name).chmod(0o755)
        pixels = write_archives(Path(name), FashionMNIST, monkeypatch)
        raw = raw_folder(Path(name), FashionMNIST)
        raw.chmod(0o555)
        with unprivileged():
            assert np.array_equal(read(Path(name)), pixels)
        assert names_in(raw) == ARCHIVES
        raw.chmod(0o000)
        with unprivileged(), pytest.raises(PermissionError) as error:
            read(Path(name))
        raw.chmod(0o755)
    assert str(raw) in str(error.value)
