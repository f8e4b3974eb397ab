from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from lightning_modules.binary_images import Counts
from lightning_modules.data_parts.larochelle import read_larochelle
from tests.lightning_modules.data_parts.small_archives import assert_one_sentence

COUNTS = Counts(train=7, val=5, test=3)
PIXELS = 6
BITS = np.random.RandomState(0).randint(0, 2, (sum(COUNTS), PIXELS)).astype(np.uint8)


def write_amat(path: Path, bits: np.ndarray, end: str = "\n") -> None:
    path.write_text("".join(" ".join(map(str, row)) + end for row in bits), newline="")


@pytest.fixture
def larochelle(tmp_path: Path) -> Path:
    folder = tmp_path / "larochelle"
    folder.mkdir()
    for name, bits in zip(("train", "valid", "test"), np.split(BITS, [7, 12]), strict=True):
        write_amat(folder / f"binarized_mnist_{name}.amat", bits)
    return folder


@pytest.mark.parametrize("end", ["\n", "\r\n", " \n"])
def test_larochelle_reads_the_bits_that_were_written_whatever_the_white_space(larochelle: Path, end: str) -> None:
    write_amat(larochelle / "binarized_mnist_test.amat", BITS[12:], end)
    assert np.array_equal(read_larochelle(larochelle.parent, COUNTS, PIXELS), BITS)


def test_larochelle_names_the_missing_file_and_its_address(larochelle: Path) -> None:
    (larochelle / "binarized_mnist_valid.amat").unlink()
    with pytest.raises(FileNotFoundError) as error:
        read_larochelle(larochelle.parent, COUNTS, PIXELS)
    assert_one_sentence(error, "got no binarized_mnist_valid.amat", "http://www.cs.toronto.edu/")


def test_larochelle_below_a_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="expected") as error:
        read_larochelle(tmp_path / "file", COUNTS, PIXELS)
    assert_one_sentence(error, str(tmp_path / "file"))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda good: good[: 4 * 2 * PIXELS], "has 24 values up to 1, expected 5 x 6 zeros and ones"),
        (lambda good: b"", "has 0 values"),
        (lambda good: b"7" + good[1:], "has 30 values up to 7"),
        (lambda good: b"-" + good[1:], "has 30 values up to 253"),
    ],
    ids=["a line too few", "empty", "another digit", "no digit"],
)
def test_larochelle_refuses_a_file_of_wrong_shape_or_content(
    larochelle: Path, damage: partial[bytes], said: str
) -> None:
    path = larochelle / "binarized_mnist_valid.amat"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match="expected") as error:
        read_larochelle(larochelle.parent, COUNTS, PIXELS)
    assert_one_sentence(error, str(path), said, "http://www.cs.toronto.edu/")
