"""What was done to the runs of a module of faults, and what came of it."""

from dataclasses import dataclass


@dataclass
class Tally:
    """Counts, printed at the end of the suite."""

    faults: int = 0
    lost: int = 0
    differences: int = 0

    def __str__(self) -> str:
        return f"faults injected: {self.faults}, runs lost: {self.lost}, differences: {self.differences}"
