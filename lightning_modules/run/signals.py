"""SIGTERM and SIGHUP: a training run saves a checkpoint before it ends; schedulers send these when time is up."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

from lightning_modules.command_line.console import EndedEarlyError

NUMBERS = (signal.SIGTERM, signal.SIGHUP)


class Signals:
    """Remembers a signal while steps are trained; at other times, or when it comes twice, the run ends at once.

    Use it in a with statement, on the main thread.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self.is_training = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        self.received, self.is_training = None, False
        self._before = {number: signal.getsignal(number) for number in NUMBERS}
        self.listen()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if threading.current_thread() is threading.main_thread():
            for number, handler in self._before.items():
                signal.signal(number, handler)

    def listen(self) -> None:
        """Take the place of other handlers; Lightning puts its own there when training starts.

        A signal that was ignored when the program started, as nohup lets it ignore SIGHUP, stays ignored.
        """
        if self._before and threading.current_thread() is threading.main_thread():
            for number, before in self._before.items():
                signal.signal(number, signal.SIG_IGN if before is signal.SIG_IGN else self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None or not self.is_training:
            raise ended_by(number, "the same command continues from the last checkpoint, if there is one")
        self.received = number


SIGNALS = Signals()  # of this process


def ended_by(number: int, what_follows: str) -> EndedEarlyError:
    """The error that ends a run, with the exit code that shells give for the signal."""
    return EndedEarlyError(f"ended by {signal.Signals(number).name}; {what_follows}", 128 + number)
