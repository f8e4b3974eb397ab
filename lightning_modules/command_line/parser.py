"""The parser of all commands, reproduce.sh included; loads nothing heavy, so a mistake is answered at once."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NoReturn


class Parser(argparse.ArgumentParser):
    """Raises ValueError where argparse would print a page of usage and exit.

    Args:
        command: the words before its options.
        description: what it does, shown as it is written.
        epilog: what --help ends with.
    """

    def __init__(self, command: str, description: str, epilog: str | None = None) -> None:
        raw = argparse.RawDescriptionHelpFormatter
        super().__init__(command, description=description, epilog=epilog, formatter_class=raw, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """Raise the message as one sentence."""
        raise ValueError(f"{' '.join(message.split())}; see {self.prog} --help")


def at_least(low: int) -> Callable[[str], int]:
    """A reader of whole numbers that are at least `low`."""

    def read(text: str) -> int:
        if not text.isascii() or not text.isdecimal() or int(text) < low:
            raise argparse.ArgumentTypeError(f"got {text!r}, expected a whole number of at least {low}")
        return int(text)

    return read
