"""Counts the faults that a module of tests injects, and their consequences."""

from dataclasses import dataclass


@dataclass
class Tally:
    """Printed at the end of the suite."""

    faults: int = 0
    lost: int = 0
    differences: int = 0

    def __str__(self) -> str:
        return f"faults injected: {self.faults}, runs lost: {self.lost}, differences: {self.differences}"
