"""Counts the faults that a module of tests injects, and their consequences."""

from dataclasses import dataclass


@dataclass
class Tally:
    """Printed at the end of the suite."""

    faults: int = 0
    lost: int = 0
    differences: int = 0
    tracebacks: int = 0

    def read(self, said: str) -> None:
        """Count a traceback in what a process said, and fail for it."""
        self.tracebacks += "Traceback" in said
        assert "Traceback" not in said, said

    def __str__(self) -> str:
        return (
            f"faults injected: {self.faults}, runs lost: {self.lost}, differences: {self.differences}, "
            f"tracebacks: {self.tracebacks}"
        )
