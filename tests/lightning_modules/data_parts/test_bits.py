from __future__ import annotations

import hashlib

import numpy as np
from torchvision.datasets import MNIST

from lightning_modules.binarized_mnist import BinarizedMNIST
from lightning_modules.data_parts.archives import REPOSITORY_DATA, read_pixels
from lightning_modules.data_parts.bits import fixed_bits, redraw, shared_fixed_bits
from tests.releg.helpers import largest_z


def assert_on_as_often_as_intensity_says(on: np.ndarray, count: np.ndarray) -> None:
    """Both (256,): how often pixels of each intensity are on, and how often they occur."""
    assert on[0] == 0
    assert on[255] == count[255]
    p = np.arange(1, 255) / 255
    z = (on[1:255] - count[1:255] * p) / np.sqrt(count[1:255] * p * (1 - p))
    assert np.abs(z).max() < largest_z(len(z))


def test_the_fixed_bits_are_one_line_of_numpy_whatever_the_chunk() -> None:
    pixels = np.random.RandomState(1).randint(0, 256, (1000, 784)).astype(np.uint8)
    bits = fixed_bits(pixels)
    assert np.array_equal(bits, np.random.RandomState(2016).random_sample((1000, 784)) < pixels / 255)
    assert np.array_equal(bits, fixed_bits(pixels, chunk=333))
    assert bits.dtype == np.uint8


def test_each_pixel_of_mnist_is_on_as_often_as_its_intensity_says() -> None:
    pixels = read_pixels(MNIST, REPOSITORY_DATA)[60_000:]
    bits = BinarizedMNIST(binarization="fixed").images("test")
    flat = pixels.ravel()
    assert_on_as_often_as_intensity_says(np.bincount(flat, bits.ravel(), 256), np.bincount(flat, minlength=256))
    expectation = pixels.sum(0, dtype=np.int64) / 255
    variance = expectation - (np.arange(256, dtype=np.uint32) ** 2)[pixels].sum(0, dtype=np.int64) / 255**2
    varied = variance > 25  # below, counts are too small to be normal
    assert varied.sum() > 400
    z = ((bits.sum(0, dtype=np.int64) - expectation)[varied]) / np.sqrt(variance[varied])
    assert np.abs(z).max() < largest_z(len(z))


def test_redrawn_bits_have_exactly_the_probability_of_their_intensity() -> None:
    pixels = np.tile(np.arange(256, dtype=np.uint8), (40_000, 1))
    assert_on_as_often_as_intensity_says(redraw(pixels, seed=1).sum(0), np.full(256, 40_000))


def test_redrawn_bits_are_the_same_for_ever() -> None:
    bits = redraw(np.arange(256, dtype=np.uint8).repeat(4), seed=5)
    assert hashlib.sha256(np.packbits(bits).tobytes()).hexdigest()[:16] == "1d29b0a9f4ac3c06"


def test_the_same_pixels_share_their_fixed_bits_and_others_do_not() -> None:
    pixels = np.full((10, 784), 128, np.uint8)
    bits = shared_fixed_bits(pixels)
    assert shared_fixed_bits(pixels.copy()) is bits
    other = shared_fixed_bits(pixels + np.uint8(50))
    assert np.array_equal(other, fixed_bits(pixels + np.uint8(50)))
    assert np.array_equal(shared_fixed_bits(pixels), fixed_bits(pixels))
