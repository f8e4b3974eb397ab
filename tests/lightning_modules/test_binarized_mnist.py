from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
from torchvision.datasets import MNIST

from lightning_modules.binarized_mnist import FIXED_BITS_SHA256, BinarizedMNIST
from lightning_modules.binary_images import SPLITS
from lightning_modules.data_parts import archives, bits
from tests.lightning_modules.data_parts.small_archives import assert_one_sentence


@pytest.fixture(scope="module")
def fixed() -> BinarizedMNIST:
    return BinarizedMNIST(binarization="fixed")


@pytest.fixture(scope="module")
def dynamic() -> BinarizedMNIST:
    return BinarizedMNIST(binarization="dynamic")


def test_splits_are_the_training_file_in_order_and_then_the_test_file(fixed: BinarizedMNIST, tmp_path: Path) -> None:
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for archive, _ in MNIST.resources:
        (raw / archive).symlink_to(archives.REPOSITORY_DATA / "MNIST" / "raw" / archive)
    train, test = (MNIST(tmp_path, train=is_train, download=True).data.flatten(1).numpy() for is_train in (True, False))
    assert np.array_equal(archives.read_pixels(MNIST, archives.REPOSITORY_DATA), np.concatenate([train, test]))
    for split, pixels in zip(SPLITS, (train[:50_000], train[50_000:], test), strict=True):
        assert len(fixed.images(split)) == len(pixels)
        for some in (slice(100), slice(-100, None)):
            black_or_white = (pixels[some] == 0) | (pixels[some] == 255)
            assert np.array_equal(fixed.images(split)[some][black_or_white], pixels[some][black_or_white] == 255)


def test_the_fixed_bits_are_the_recorded_ones_whatever_the_seed(fixed: BinarizedMNIST) -> None:
    drawn = np.concatenate([fixed.images(split) for split in SPLITS])
    assert fixed.checksum == hashlib.sha256(np.packbits(drawn).tobytes()).hexdigest() == FIXED_BITS_SHA256
    assert np.shares_memory(BinarizedMNIST(binarization="fixed", seed=7).images("test"), fixed.images("test"))


def test_dynamic_redraws_the_training_bits_and_freezes_the_others(
    fixed: BinarizedMNIST, dynamic: BinarizedMNIST
) -> None:
    for split in SPLITS:
        assert np.array_equal(dynamic.images(split), fixed.images(split))
    assert dynamic.checksum == "2c6e7dfdb8f6ec68bab02b1e0e041abc1699dc66a7a31176f5f693cb31eb8d2a"
    pixels = archives.read_pixels(MNIST, archives.REPOSITORY_DATA)[:50_000]
    np.testing.assert_allclose(dynamic.mean, pixels.sum(0, dtype=np.int64) / 255 / 50_000, rtol=1e-7)


@pytest.mark.parametrize(
    ("binarization", "digest"),
    [("fixed", "501ca6c979e18375d1c4f4c9cb8426d3"), ("dynamic", "6b30d3ff5b0dbb21dc44b248ba4c6035")],
)
def test_batches_are_the_same_for_ever(binarization: str, digest: str) -> None:
    data = BinarizedMNIST(binarization=binarization, seed=3)  # type: ignore[arg-type]
    loader, sha256 = data.train_dataloader(), hashlib.sha256()
    for loader.position in (0, 1, 499, 500, 1234):
        sha256.update(next(iter(loader)).numpy().tobytes())
    assert sha256.hexdigest()[:32] == digest


def test_training_has_500_batches_of_100_by_default() -> None:
    assert [len(x) for x in BinarizedMNIST().train_dataloader()] == [100] * 500


def test_larochelle_serves_the_bits_of_its_files(
    tmp_path: Path, fixed: BinarizedMNIST, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lightning_modules.binarized_mnist.read_larochelle", lambda *asked: fixed._all().bits)
    data = BinarizedMNIST(tmp_path, binarization="larochelle")
    with pytest.raises(FileNotFoundError, match="larochelle"):
        data.prepare_data()
    monkeypatch.setattr("lightning_modules.binarized_mnist.find_larochelle", lambda folder: [])
    assert data.checksum == FIXED_BITS_SHA256
    assert torch.equal(data.mean, fixed.mean)


def test_another_binarization_is_refused() -> None:
    with pytest.raises(ValueError, match="expected") as error:
        BinarizedMNIST(binarization="static")  # type: ignore[arg-type]
    assert_one_sentence(error, "binarization is 'static', expected one of fixed, dynamic, larochelle")


def test_bits_from_a_changed_stream_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bits, "FIXED_BITS_SEED", 2017)
    with pytest.raises(RuntimeError) as error:
        BinarizedMNIST().setup("fit")
    assert_one_sentence(error, f"expected {FIXED_BITS_SHA256}", "numpy")
