"""Zeros and ones from grey images: drawn once, the same for everyone, or drawn again at every access."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.uint8]

FIXED_BITS_SEED = 2016

_last_drawn: dict[tuple[int, str], Array] = {}  # fixed bits by seed and checksum of the intensities


def fixed_bits(pixels: Array, chunk: int = 200) -> Array:
    """Draw every pixel once, with its intensity as the probability of being on; same shape as `pixels`, 0 or 1.

    One stream, one uniform number per pixel, `u < pixel / 255`. numpy promises that RandomState's stream never changes.
    """
    stream = np.random.RandomState(FIXED_BITS_SEED)
    threshold = np.arange(256) / 255
    bits = np.empty(pixels.shape, np.bool_)
    for start in range(0, len(pixels), chunk):  # the chunk bounds memory; the stream does not depend on it
        part = pixels[start : start + chunk]
        np.less(stream.random_sample(part.shape), threshold[part], out=bits[start : start + chunk])
    return bits.view(np.uint8)


def shared_fixed_bits(pixels: Array) -> Array:
    """The fixed bits, drawn once per process: later data modules save half a second and 55 MB."""
    key = (FIXED_BITS_SEED, hashlib.sha256(pixels.data).hexdigest())
    if key not in _last_drawn:
        _last_drawn.clear()
        _last_drawn[key] = fixed_bits(pixels)
    return _last_drawn[key]


def redraw(pixels: Array, seed: int) -> npt.NDArray[np.bool_]:
    """Draw bits of the same shape, each on with probability exactly pixel / 255, from the stream of `seed`.

    A byte below 255 is less than `pixel` with that probability; the one value in 256 that is too large is drawn again.
    Only PCG64's raw output is used, which numpy promises never to change.
    """
    stream = np.random.PCG64(seed)

    def draw(count: int) -> Array:
        return stream.random_raw(-(-count // 8)).view(np.uint8)[:count]

    byte = draw(pixels.size)
    again = np.flatnonzero(byte == 255)
    while again.size:
        byte[again] = draw(again.size)
        again = again[byte[again] == 255]
    return byte.reshape(pixels.shape) < pixels


def sha256_of_bits(bits: Array) -> str:
    """SHA-256 of the bits, packed eight to a byte."""
    return hashlib.sha256(np.packbits(bits).data).hexdigest()
