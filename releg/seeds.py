"""Seeds as a pure function of position, so that no generator has a state to save."""

from __future__ import annotations

import hashlib


def seed_for(*parts: int | str) -> int:
    """Seed of 63 bits for the random numbers used at one position of a run.

    `seed_for(seed, "order", epoch)` is the same on every machine, in every process and after every restart, and
    unrelated to `seed_for(seed, "order", epoch + 1)`. So a run that goes on at step t after an interruption draws what
    it would have drawn without.

    Args:
        parts: what names the position: whole numbers and words, in a fixed order.
    """
    for part in parts:
        # bool and numpy's integers print differently from the int they equal, and would silently give another seed
        if type(part) not in (int, str):
            raise TypeError(
                f"seed_for got {part!r} of type {type(part).__name__}, expected int or str; convert it first"
            )
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
