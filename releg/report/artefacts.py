"""What reports do if a file that they read is damaged, or if one that they write cannot be made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def readable(path: Path, expected: str, fix: str) -> Iterator[None]:
    """Turn whatever a missing or damaged file raises into a ValueError of one sentence."""
    try:
        yield
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path} cannot be read ({type(error).__name__}: {error}), expected {expected}; {fix}"
        ) from error


def remove(*paths: Path) -> None:
    """Delete artefacts that cannot be made now, so that nobody takes them for new ones."""
    for path in paths:
        path.unlink(missing_ok=True)
