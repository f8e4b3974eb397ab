"""Seeds as a pure function of the position in a run, so that no generator has a state to save."""

from __future__ import annotations

import hashlib


def seed_for(*parts: int | str) -> int:
    """A 63-bit seed for the random numbers at one position of a run.

    `seed_for(seed, "order", epoch)` is the same on every machine, in every process and after every restart, and
    unrelated to `seed_for(seed, "order", epoch + 1)`. So a run that continues at step t draws the same numbers
    as one that was never interrupted.

    Args:
        parts: the position: whole numbers and words, in a fixed order.
    """
    for part in parts:
        # bool and numpy's integers print differently from the int they equal, and would silently give another seed
        if type(part) not in (int, str):
            raise TypeError(
                f"seed_for got {part!r} of type {type(part).__name__}, expected int or str; convert it first"
            )
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
