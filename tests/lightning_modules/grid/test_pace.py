"""Work is compared with its prediction over the recent past."""

import pytest

from lightning_modules.grid.pace import RECENT, TRUSTED_AFTER, Pace


def follow(pace: Pace, actual: float, predicted: float, seconds: float, speed: float) -> tuple[float, float, float]:
    """Work on for that long at a speed of so many predicted seconds per second; the totals and the last factor."""
    factor = 1.0
    for _ in range(int(seconds)):
        actual, predicted = actual + 1, predicted + speed
        factor = pace.factor(actual, predicted)
    return actual, predicted, factor


def test_prediction_stands_until_there_is_work_to_judge_it_by() -> None:
    assert Pace().factor(0.0, 0.0) == 1.0
    assert Pace().factor(5 * TRUSTED_AFTER, TRUSTED_AFTER / 2) == 1.0


def test_work_that_takes_twice_its_prediction_doubles_the_rest() -> None:
    assert Pace().factor(4 * TRUSTED_AFTER, 2 * TRUSTED_AFTER) == pytest.approx(2.0)


def test_a_pause_of_hours_is_forgotten_after_ten_minutes() -> None:
    pace = Pace()
    actual, predicted, before = follow(pace, 0.0, 0.0, 2 * RECENT, speed=0.5)
    assert before == pytest.approx(2.0)
    paused = actual + 20_000
    assert pace.factor(paused, predicted + 1) > 20
    *_, after = follow(pace, paused, predicted + 1, RECENT + RECENT / 10, speed=0.5)
    assert after == pytest.approx(2.0)


def test_a_failed_run_takes_its_work_along_and_the_pace_is_that_of_the_others() -> None:
    pace = Pace()
    follow(pace, 0.0, 0.0, 2 * RECENT, speed=0.25)
    assert pace.factor(300.0, 150.0) == pytest.approx(2.0)
