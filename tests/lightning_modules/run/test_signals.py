"""What a signal does at which moment; tests/faults/test_endings.py sends them to runs."""

import os
import signal

import pytest

from lightning_modules.console import EndedEarlyError
from lightning_modules.run.signals import SIGNALS, Signals


@pytest.mark.parametrize("number", SIGNALS)
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
