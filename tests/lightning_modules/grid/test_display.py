"""What the user sees of the grid."""

import io
from pathlib import Path

import pytest

from lightning_modules.grid.display import GridDisplay, duration
from lightning_modules.grid.estimate import Cost
from lightning_modules.grid.launchers.contract import Ended
from lightning_modules.grid.options import ARCHITECTURE_OVERLAYS, ESTIMATOR_OVERLAYS
from lightning_modules.grid.plan import GridRun, RunStatus
from lightning_modules.run.result import write_result
from tests.lightning_modules.run_states import RESULT


def waiting(tmp_path: Path, count: int, steps_done: int = 0) -> list[RunStatus]:
    names = [(architecture, estimator) for architecture in ARCHITECTURE_OVERLAYS for estimator in ESTIMATOR_OVERLAYS]
    config = {"trainer": {"max_steps": 100}}
    runs = [GridRun(architecture, estimator, 0, ()) for architecture, estimator in names[:count]]
    return [RunStatus(run, config, tmp_path / str(number), None, steps_done) for number, run in enumerate(runs)]


def test_runs_that_took_twice_their_prediction_double_the_rest(tmp_path: Path) -> None:
    two = waiting(tmp_path, 2)
    display = GridDisplay(2, 0, two, {each.run: Cost(10.0, 0.1, 0.0, 100) for each in two}, 1, io.StringIO())
    assert display.seconds_left() == pytest.approx(40.0)
    two[0].folder.mkdir()
    write_result(two[0].folder, RESULT)
    display.update([], [Ended(two[0], 40.0, "")])
    assert display.seconds_left() == pytest.approx(40.0)


def test_a_failed_run_is_told_at_once_and_remembered(tmp_path: Path) -> None:
    (one,) = waiting(tmp_path, 1)
    out = io.StringIO()
    display = GridDisplay(1, 0, [one], {}, 1, out)
    assert display.seconds_left() is None
    display.update([], [Ended(one, 1.0, "the disk is full")])
    assert out.getvalue() == "SBN(200-200) lr seed 0 failed: the disk is full\n"
    assert display.problems == {one.run: "the disk is full"}


@pytest.mark.parametrize(
    ("seconds", "text"), [(40.2, "40 s"), (720.0, "12 min"), (12_600.0, "3.5 h"), (354_240.0, "4.1 days")]
)
def test_durations_are_round(seconds: float, text: str) -> None:
    assert duration(seconds) == text
