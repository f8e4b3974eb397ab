"""Loops for the CPU that numba compiles; without numba, callers fall back to torch."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec


@cache
def has_numba() -> bool:
    """Whether loops can be compiled."""
    return find_spec("numba") is not None
