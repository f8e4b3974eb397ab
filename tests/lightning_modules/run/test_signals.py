"""What a signal does at which moment; tests/faults/test_endings.py sends them to runs."""

import os
import signal

import pytest

from lightning_modules.command_line.console import EndedEarlyError
from lightning_modules.run.signals import NUMBERS, Signals


def test_a_signal_that_nohup_lets_the_program_ignore_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Signals() as signals:
            signals.listen()
            os.kill(os.getpid(), signal.SIGHUP)
        assert signals.received is None
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_is_remembered_in_training_and_ends_the_run_at_other_times_or_the_second_time(number: int) -> None:
    before = signal.getsignal(number)
    for is_training in (True, False):
        with Signals() as signals:
            signals.is_training = is_training
            if is_training:
                os.kill(os.getpid(), number)
                assert signals.received == number
            with pytest.raises(EndedEarlyError, match=f"ended by {signal.Signals(number).name}; ") as end:
                os.kill(os.getpid(), number)
            assert end.value.code == 128 + number
    assert signal.getsignal(number) == before
