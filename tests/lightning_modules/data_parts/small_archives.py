"""Small archives in MNIST's format, and what tests of data say of errors."""

import gzip
import hashlib
from pathlib import Path

import numpy as np
import pytest
from torchvision.datasets import MNIST

TRAIN, TEST = 60, 20  # images per file


def write_archives(data_dir: Path, dataset: type[MNIST], monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """Write the four archives of a small data set that torchvision takes for `dataset`; answers with all pixels."""
    pixels = np.random.RandomState(1).randint(0, 256, (TRAIN + TEST, 784)).astype(np.uint8)
    raw = raw_folder(data_dir, dataset)
    raw.mkdir(parents=True)
    resources = []
    for prefix, part in (("train", pixels[:TRAIN]), ("t10k", pixels[TRAIN:])):
        images = np.array([2051, len(part), 28, 28], ">i4").tobytes() + part.tobytes()
        labels = np.array([2049, len(part)], ">i4").tobytes() + bytes(len(part))
        for name, content in (("images-idx3", images), ("labels-idx1", labels)):
            packed = gzip.compress(content, mtime=0)
            (raw / f"{prefix}-{name}-ubyte.gz").write_bytes(packed)
            resources.append((f"{prefix}-{name}-ubyte.gz", hashlib.md5(packed).hexdigest()))
    monkeypatch.setattr(dataset, "resources", resources)
    return pixels


def raw_folder(data_dir: Path, dataset: type[MNIST]) -> Path:
    return data_dir / dataset.__name__ / "raw"


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def assert_one_sentence(error: pytest.ExceptionInfo[BaseException], *parts: str) -> None:
    message = str(error.value)
    assert "\n" not in message
    assert "expected" in message
    assert ";" in message, "a fix follows the semicolon"
    for part in parts:
        assert part in message
