"""How fast the grid's work goes, compared with its prediction."""

from __future__ import annotations

from collections import deque

TRUSTED_AFTER = 10.0  # seconds of predicted work, before which actual times do not correct the prediction
RECENT = 600.0  # seconds of work, over all jobs, that set the pace: a pause or a busy hour is forgotten after them
MARKS = 20  # moments remembered within these


class Pace:
    """The actual time of recent work, divided by its predicted time."""

    def __init__(self) -> None:
        self._marks: deque[tuple[float, float]] = deque([(0.0, 0.0)])  # see `factor`; oldest first

    def factor(self, actual: float, predicted: float) -> float:
        """Seconds that all work so far took, and those that were predicted for it -> what to multiply a prediction by.

        Called again and again, with numbers that grow; they fall when a run fails, and then the past is forgotten.
        """
        if actual < self._marks[-1][0] or predicted < self._marks[-1][1]:
            self._marks = deque([(0.0, 0.0)])
        if actual - self._marks[-1][0] > RECENT / MARKS:
            self._marks.append((actual, predicted))
        while len(self._marks) > 1 and actual - self._marks[1][0] > RECENT:
            self._marks.popleft()
        took, expected = (total - before for total, before in zip((actual, predicted), self._marks[0], strict=True))
        return took / expected if expected > TRUSTED_AFTER else 1.0
